"""The documentation agrees with the code: commands, options, keys, links, space files, examples,
and what is generated.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import posixpath
import re
import shlex
import tomllib
from typing import Any

import click
import pytest
from click.testing import CliRunner

import sweeps
from docs.generate import console, import_graph, python_api, space_file
from docs.generate.pages import PARTS
from sweeps import trial
from sweeps.bundle.bundle_model import Bundle
from sweeps.cli import main
from sweeps.core import errors
from sweeps.core.plugins import plugin_registry
from sweeps.core.result import SweepResult
from sweeps.core.trial import State
from sweeps.space import load
from sweeps.space.model.domains import DOMAINS, RULES
from sweeps.space.model.step_names import BUILTIN_STEPS, required_parameters
from sweeps.space.parse.section_checks import fragments
from sweeps.space.parse.top_level_keys import TOP
from sweeps.space.sections import data_models
from sweeps.space.sections.data_section import SKLEARN
from sweeps.space.sections.search_sections import scheduler_keys
from sweeps.space.sections.space_sections import SCALING, SECTIONS
from tests.documents import (
    BLOCKS,
    DOCUMENTS,
    GENERATED,
    MANUAL,
    ROOT,
    WRITTEN,
    Block,
    Document,
    block_beginning,
    is_space,
    module_named,
)
from tests.shipped_spaces import load_or_skip

SPACES = sorted((ROOT / "search_spaces").rglob("*.y*ml"))
README = DOCUMENTS["README.md"]
SPACE_FILE = DOCUMENTS["docs/reference/space-file.md"]
COMMAND_LINE = DOCUMENTS["docs/reference/command-line.md"]
LANGUAGES = {"bash", "console", "text", "yaml", "python", "json", "lua"}
# What these blocks show runs with other tools, or is not complete on purpose.
FOREIGN = ("docs/coming-from/",)
# Metrics that look like keys of the space file.
IN_MLFLOW = ("checkpoints.freed", "objective.METRIC")


def rows(document: Document) -> list[list[str]]:
    """Return the rows of the tables of a document."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in document.prose.splitlines()
        if line.startswith("|")
    ]


def row_of(document: Document, name: str) -> list[str]:
    """Return the row whose first cell is this name in code, maybe with arguments behind it."""
    matching = [
        row for row in rows(document) if re.match(rf"\[?`{re.escape(name)}(:[^`]*)?`", row[0])
    ]
    assert matching, f"`{name}` has no row in {document.path}"
    return matching[0]


# ---- the README


def test_the_readme_is_short():
    assert len(README.text.splitlines()) <= 150


def test_readme_shows_first_commands_and_short_space_file_early():
    assert (
        README.text.index("make run") < README.text.index("make test") < README.text.index("\n## ")
    )
    assert any(is_space(block) and len(block.text.splitlines()) <= 15 for block in README.blocks)


def test_the_times_of_the_comparison_are_in_the_benchmarks():
    measured = (ROOT / "reports" / "benchmarks.md").read_text(encoding="utf-8")
    times = re.findall(
        r"\b[\d.]+ m?s\b", README.text.partition("## Beside other tools")[2].partition("\n## ")[0]
    )
    assert len(times) >= 6
    for time in times:
        assert f"| {time} (" in measured, time


# ---- the command line


@pytest.mark.parametrize("document", MANUAL, ids=lambda d: d.path)
def test_every_block_of_code_names_its_language_and_is_closed(document):
    fences = re.findall(r"^ *```", document.text, re.MULTILINE)
    assert len(fences) == 2 * len(document.blocks)
    assert {block.language for block in document.blocks} <= LANGUAGES


def commands() -> list[Any]:
    """Return every `sweeps ...` command that a reader could type."""
    cases = []
    for block in BLOCKS:
        if block.language not in ("bash", "text", "console"):
            continue
        text = block.text.replace("\\\n", " ")
        for line in re.findall(
            r"^(?:\$ )?\s*(?:\w+=\S+ )?(?:ray job submit .*-- )?(?:\.venv/bin/)?sweeps ([a-z-].*)$",
            text,
            re.MULTILINE,
        ):
            cases.append(pytest.param(line, id=f"{block.page}: {line}"))
    return cases


@pytest.mark.parametrize("line", commands())
def test_every_command_shown_parses(line):
    verb, *arguments = shlex.split(line.partition(" > ")[0], comments=True)
    if verb == "--version":
        return
    assert verb in main.commands
    main.commands[verb].make_context(verb, arguments)


def test_there_are_commands_to_check():
    assert len(commands()) >= 30


@pytest.mark.parametrize("document", MANUAL, ids=lambda d: d.path)
def test_options_named_in_the_text_exist(document):
    known = {
        name
        for command in (main, *main.commands.values())
        for p in command.get_params(click.Context(command))
        for name in p.opts
    }
    known |= {"--backend-store-uri"}  # of `mlflow ui`
    code = re.findall(r"`([^`\n]+)`", document.prose)
    named = {option for text in code for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)}
    assert named <= known, f"{document.path}: no such options: {named - known}"


@pytest.mark.parametrize("document", MANUAL, ids=lambda d: d.path)
def test_verbs_named_in_the_text_exist(document):
    code = re.findall(r"`sweeps ([a-z]+)[^`\n]*`", document.prose)
    assert set(code) <= set(main.commands), f"{document.path}: {set(code) - set(main.commands)}"


def test_make_targets_shown_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in MANUAL:
        shown = {
            target
            for block in document.blocks
            if block.language == "bash"
            for target in re.findall(r"^make ([\w-]+)", block.text, re.M)
        }
        shown |= set(re.findall(r"`make ([\w-]+)`", document.prose))
        assert shown <= targets, f"{document.path}: {shown - targets}"


def test_no_line_of_the_help_is_cut_off():
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).output.partition("Commands:")[2]
    assert all(f"  {verb} " in shown for verb in main.commands) and "..." not in shown


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_every_verb_and_option_is_in_the_reference(verb):
    section = COMMAND_LINE.text.partition(f"\n## `sweeps {verb}`")[2].partition("\n## ")[0]
    assert section
    for parameter in main.commands[verb].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert all(option in section for option in parameter.opts), f"{verb} {parameter.opts}"


def test_every_exit_code_is_in_the_reference():
    codes = {0} | {
        e.exit_code
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, errors.SweepsError)
    }
    for page in (COMMAND_LINE, DOCUMENTS["docs/reference/errors.md"]):
        assert all(row_of(page, str(code)) for code in codes)


def test_every_key_of_the_result_is_in_the_reference():
    page = DOCUMENTS["docs/reference/sweep-files.md"]
    for field in dataclasses.fields(SweepResult):
        assert row_of(page, field.name)[1], field.name


# ---- the glossary


def test_the_glossary_explains_each_word_once_and_names_a_page():
    entries = [
        row
        for row in rows(DOCUMENTS["docs/reference/glossary.md"])
        if row[0] not in ("word", "---")
    ]
    words = [re.sub(r" \(`.*", "", row[0]) for row in entries]
    assert len(words) == len(set(words)) >= 50
    assert all(row[1].endswith(".") and re.fullmatch(r"\[.+\]\(.+\)", row[2]) for row in entries)


# ---- the space file


def test_every_section_and_key_of_the_space_file_is_in_the_reference():
    for key in TOP:
        row_of(SPACE_FILE, key)
    for section in SECTIONS:
        row_of(SPACE_FILE, f"space.{section}")
    for key in SCALING:
        row_of(SPACE_FILE, f"space.scaling.{key}")
    for section, (model, *_) in space_file.MODELS.items():
        for key in fragments(model):
            row_of(SPACE_FILE, f"{section}.{key}")
    for key in scheduler_keys():
        assert any(row[0] == f"`scheduler.{key}`" for row in rows(SPACE_FILE))


def test_keys_named_in_the_text_exist():
    sections = {
        section: set(fragments(model)) for section, (model, *_) in space_file.MODELS.items()
    }
    sections["space"] = set(SECTIONS)
    sections["scheduler"] = set(scheduler_keys())
    sections["bundle"] |= set(vars(Bundle))  # Python code names a loaded bundle `bundle`.
    for document in MANUAL:
        for section, key in re.findall(rf"`({'|'.join(sections)})\.(\w+)[^`\n]*`", document.prose):
            assert key in sections[section] | {"yaml"} or f"{section}.{key}" in IN_MLFLOW, (
                f"{document.path}: {section}.{key}"
            )


@pytest.mark.parametrize("form", [data_models.ByColumn, data_models.ByTime])
def test_every_form_of_a_split_is_documented(form):
    names = [f.name for f in dataclasses.fields(form)]
    pattern = r"`\{" + r", ".join(f"{n}: [^,]+" for n in names) + r"\}`"
    for page in (SPACE_FILE, DOCUMENTS["docs/how-to/own-data.md"]):
        assert any(re.fullmatch(pattern, row[0]) for row in rows(page)), names


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_is_in_the_reference_with_its_arguments_and_bounds(domain):
    name, meaning = row_of(SPACE_FILE, domain)[:2]
    if domain in RULES:
        rule = RULES[domain]
        assert name == f"`{domain}: [{', '.join(rule.args)}]`"
        if rule.integer:
            assert "excluded" in meaning
        if "upper" in rule.args and "q" in rule.args:
            assert "ounds" in meaning and "included" in meaning


@pytest.mark.parametrize("step", BUILTIN_STEPS)
def test_every_step_is_in_the_reference_with_its_parameters(step):
    said = row_of(SPACE_FILE, step)[1]
    assert all(f"`{parameter}`" in said for parameter in BUILTIN_STEPS[step])
    assert not required_parameters(step) or "required" in said


def test_the_data_sets_are_documented():
    assert all(
        f"`{name}`" in row_of(DOCUMENTS["docs/how-to/own-data.md"], "sklearn:NAME")[1]
        for name in SKLEARN
    )


# ---- Python


def test_the_reference_of_python_documents_the_public_names_and_no_others():
    assert python_api.documented() == set(sweeps.__all__)


TELL_OF_TAGS = tuple(
    f"docs/how-to/{page}.md"
    for page in ("mlflow", "export", "limits", "objectives", "earlier-sweeps")
)


def test_names_of_sweeps_in_the_text_exist():
    public = {*sweeps.__all__, "trainers", "testing", "core", "space", "trial", "loaders"}
    for document in MANUAL:
        code = "\n".join(re.findall(r"`([^`\n]+)`", document.prose))
        tags = {
            "trial",
            "seed",
            "state",
            "error",
            "feasible",
            "front",
            "repeats",
            "enqueued",
            "best_trial",
            "best_run",
            "bundle",
            "dir",
            "reason",
            "pbt",
        }
        tags |= {"data_fingerprint", "space", "manifest_sha256", "schema", "learned_from"}
        named = set(re.findall(r"\bsweeps\.(\w+)", code))
        if document.path in TELL_OF_TAGS:
            named -= tags
        assert named <= public | {"pbt", "__all__"}, f"{document.path}: {named - public}"


def test_the_loop_context_is_documented():
    page = DOCUMENTS["docs/how-to/loop-context.md"]
    code = re.findall(r"`([^`\n]+)`", page.prose)
    public = {f.name for f in dataclasses.fields(trial.Current)} | set(vars(trial.Current))
    for name in public:
        if not name.startswith("_"):
            assert any(re.match(rf"{name}\b", one) for one in code), (
                f"sweeps.trial.current().{name}"
            )


def test_every_state_is_documented():
    page = DOCUMENTS["docs/how-to/limits.md"]
    for state in State:
        assert any(
            row[0] == (state.name if state is not State.RUNNING else "interrupted")
            for row in rows(page)
        ), state


def test_the_built_in_trainers_are_documented_with_their_parameters():
    page = DOCUMENTS["docs/reference/trainers.md"]
    for file in (ROOT / "trainers").glob("[a-z]*.py"):
        assert f"## `{file.stem}`" in page.text
        row_of(DOCUMENTS["docs/how-to/trainers.md"], file.stem)


@pytest.mark.parametrize(
    ("page", "heading", "kind"),
    [
        ("docs/how-to/search.md", "## Which sampler", "sampler"),
        ("docs/how-to/search.md", "## Which scheduler", "scheduler"),
        ("docs/how-to/trackers.md", "# Trackers", "tracker"),
    ],
)
def test_the_tables_of_plug_ins_have_a_row_for_every_built_in_one(page, heading, kind):
    section = f"\n{DOCUMENTS[page].text}".partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(named) == sorted(plugin_registry.names(kind))


# ---- what is shown can be used


def spaces() -> list[Any]:
    return [
        pytest.param(block, id=f"{block.page}: {block.text.split()[1]}")
        for block in BLOCKS
        if is_space(block)
    ]


def write_modules(folder: Any, page: str) -> None:
    """Write the modules beside the space files that ship, and those that the manual shows, of which
    those of this page come last.
    """
    for module in (ROOT / "search_spaces").glob("*.py"):
        (folder / module.name).write_text(module.read_text())
    for block in sorted(BLOCKS, key=lambda block: block.page == page):
        if (name := module_named(block)) is not None:
            (folder / name).write_text(block.text)


@pytest.mark.parametrize("block", spaces())
def test_every_space_file_shown_loads(block, tmp_path):
    write_modules(tmp_path, block.page)
    file = tmp_path / "space.yaml"
    file.write_text(block.text)
    assert load_or_skip(file).shapes


def test_there_are_space_files_to_check():
    assert len(spaces()) >= 15


def test_the_quickstart_of_the_tutorial_is_the_one_that_ships(tmp_path):
    for name in ("quickstart", "digits-mlp"):
        (tmp_path / "shown.yaml").write_text(block_beginning(f"name: {name}"))
        shown = load(tmp_path / "shown.yaml")
        ships = load(ROOT / "search_spaces" / f"{name.replace('-', '_')}.yaml")
        assert shown.scheduler == ships.scheduler and shown.limits == ships.limits
        assert {d.name: d for d in shown.dimensions}.items() <= {
            d.name: d for d in ships.dimensions
        }.items()


@pytest.mark.parametrize(
    "block",
    [b for b in BLOCKS if b.language == "python" and not b.page.startswith(FOREIGN)],
    ids=lambda b: b.page,
)
def test_every_piece_of_python_compiles(block: Block):
    tree = compile(block.text, block.page, "exec", ast.PyCF_ONLY_AST)
    for node in ast.walk(tree):  # public names that are used exist
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "sweeps"
        ):
            assert node.attr in sweeps.__all__


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "json"], ids=lambda b: b.page)
def test_every_piece_of_json_parses(block: Block):
    json.loads(block.text)


@pytest.mark.parametrize("file", SPACES, ids=lambda f: f.stem)
def test_every_shipped_space_validates(file):
    assert load_or_skip(file).shapes


def test_spaces_are_shipped():
    assert len(SPACES) >= 4


# ---- links


def links() -> list[Any]:
    return [
        pytest.param(document, link, id=f"{document.path}: {link}")
        for document in (*WRITTEN, *GENERATED)
        for link in document.links
    ]


@pytest.mark.parametrize(("document", "link"), links())
def test_every_link_resolves(document, link):
    path, _, anchor = link.partition("#")
    target = (
        posixpath.normpath(posixpath.join(posixpath.dirname(document.path), path))
        if path
        else document.path
    )
    assert target in DOCUMENTS or (ROOT / target).exists(), f"{document.path}: {link}"
    if anchor:
        assert anchor in DOCUMENTS[target].anchors, f"{target} has no #{anchor}"


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.removeprefix("docs/") for path in DOCUMENTS if path.startswith("docs/")}
    assert not {page for page in pages if f" {page}\n" not in nav}


def test_the_tests_that_the_threat_model_names_exist():
    named = set(re.findall(r"`(tests/[^`]+)`", DOCUMENTS["docs/trust.md"].text))
    assert len(named) > 10 and not {name for name in named if not (ROOT / name).exists()}


def features() -> list[list[str]]:
    """Return the rows of the tables of features: a feature, sweeps, and six other tools."""
    return [
        row
        for row in rows(DOCUMENTS["docs/features.md"])
        if len(row) == 8 and row[0] and not row[0].startswith("--")
    ]


@pytest.mark.parametrize("row", features(), ids=lambda row: row[0])
def test_each_feature_names_its_test_or_documentation(
    row,
):
    tests = {
        number: test.strip("`")
        for number, test, *more in rows(DOCUMENTS["docs/features.md"])
        if number.isdigit() and not more
    }
    numbers = re.findall(r"<sup>(\d+)</sup>", row[1])
    assert bool(numbers) == (row[1] != "–")
    for number in numbers:
        file, _, test = tests[number].partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"
    for cell in row[2:]:
        assert cell in ("–", "your code") or re.fullmatch(
            r"\[[^]]+\]\(https://[^)]+\)(, \[[^]]+\]\(https://[^)]+\))*", cell
        ), cell


def test_the_features_that_sweeps_lacks_are_listed():
    lacking = [row[0] for row in features() if row[1] == "–"]
    assert len(features()) >= 40 and len(lacking) >= 8


@pytest.mark.parametrize("path", ["docs/internals/architecture.md", "CONTRIBUTING.md"])
def test_the_paths_that_a_page_names_exist(path):
    for name in re.findall(
        r"`((?:sweeps|tests|trainers|docs|reports)/[\w./-]+)`", DOCUMENTS[path].prose
    ):
        assert "NAME" in name or (ROOT / name).exists() or name in DOCUMENTS, name


def test_every_test_marker_and_make_target_is_in_the_contributing_guide():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    guide = DOCUMENTS["CONTRIBUTING.md"]
    for marker in project["tool"]["pytest"]["ini_options"]["markers"]:
        name = marker.partition(":")[0]
        assert name == "filterwarnings" or row_of(guide, name)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in targets - {"clean", "screenshots", "bench-serving"}:
        assert row_of(guide, f"make {target}")


# ---- the diagram


def test_the_diagram_of_the_architecture_is_the_import_graph():
    drawn = import_graph.FILE.read_text(encoding="utf-8")
    assert drawn == import_graph.svg(import_graph.graph()), (
        "draw it again: .venv/bin/python -m docs.generate.import_graph"
    )


def test_the_table_of_folders_names_every_folder():
    table = PARTS["folders"]()
    assert all(f"| `{folder}` |" in table for folder in import_graph.graph())
    assert "<!-- generated: folders -->" in DOCUMENTS["docs/internals/architecture.md"].text


# ---- what is cheap is run


@pytest.mark.parametrize("path", list(console.pages()), ids=lambda path: path.name)
def test_the_output_shown_is_what_the_command_prints(path):
    text = path.read_text(encoding="utf-8")
    assert text == console.renewed(text), "renew it: .venv/bin/python -m docs.generate.console"


def test_there_is_output_to_check():
    assert len(list(console.pages())) >= 4


def test_the_commands_for_editors_and_ci_run():
    for line in (
        "schema",
        "validate search_spaces/quickstart.yaml --set limits.max_trials=8",
        "plan search_spaces/quickstart.yaml --json",
    ):
        assert (
            CliRunner()
            .invoke(main, line.replace("search_spaces", str(ROOT / "search_spaces")).split())
            .exit_code
            == 0
        )


# ---- the English


def sentences(document: Document) -> list[str]:
    """Return the sentences of a document.

    A cell of a table or an item of a list is a text of its own; code counts as one word.
    """
    prose = re.sub(r"<!--.*?-->|<[^>]+>", "", document.prose, flags=re.DOTALL)
    texts: list[str] = []
    for block in re.split(r"\n\s*\n", prose):
        if block.lstrip().startswith("|"):
            continue  # cells hold lists of names
        texts += re.split(r"\n(?=\s*(?:- |\d+\. ))", block)
    plain = [
        re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", " ".join(text.split())))
        for text in texts
        if not text.startswith("#")
    ]
    return [sentence for text in plain for sentence in re.split(r"(?<=[.:;!?])\s+", text)]


@pytest.mark.parametrize("document", MANUAL, ids=lambda d: d.path)
def test_sentences_have_25_words_at_most(document):
    long = [
        sentence
        for sentence in sentences(document)
        if len(re.findall(r"\b[\w'’-]+\b", sentence)) > 25
    ]
    assert not long, "\n".join(long)
