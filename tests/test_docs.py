"""The documentation agrees with the code: commands, links, features, diagrams and its English."""

from __future__ import annotations

import posixpath
import re
import shlex
import tomllib
from typing import Any

import click
import pytest
from click.testing import CliRunner

from docs.generate import console, import_graph
from docs.generate.pages import PARTS
from sweeps.cli import main
from tests.documents import (
    BLOCKS,
    DOCUMENTS,
    GENERATED,
    MANUAL,
    ROOT,
    WRITTEN,
    Document,
    is_space,
    row_of,
    rows,
)

README = DOCUMENTS["README.md"]
LANGUAGES = {"bash", "console", "text", "yaml", "python", "json", "lua"}


# ---- the README


def test_the_readme_is_short() -> None:
    assert len(README.text.splitlines()) <= 150


def test_readme_shows_first_commands_and_short_space_file_early() -> None:
    assert (
        README.text.index("make run") < README.text.index("make test") < README.text.index("\n## ")
    )
    assert any(is_space(block) and len(block.text.splitlines()) <= 15 for block in README.blocks)


def test_the_times_of_the_comparison_are_in_the_benchmarks() -> None:
    measured = (ROOT / "reports" / "benchmarks.md").read_text(encoding="utf-8")
    times = re.findall(
        r"\b[\d.]+ m?s\b", README.text.partition("## Beside other tools")[2].partition("\n## ")[0]
    )
    assert len(times) >= 6
    for time in times:
        assert f"| {time} (" in measured, time


# ---- the command line


@pytest.mark.parametrize("document", MANUAL, ids=lambda d: d.path)
def test_every_block_of_code_names_its_language_and_is_closed(document: Any) -> None:
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
def test_every_command_shown_parses(line: Any) -> None:
    verb, *arguments = shlex.split(line.partition(" > ")[0], comments=True)
    if verb == "--version":
        return
    assert verb in main.commands
    main.commands[verb].make_context(verb, arguments)


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 30


@pytest.mark.parametrize("document", MANUAL, ids=lambda d: d.path)
def test_options_named_in_the_text_exist(document: Any) -> None:
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
def test_verbs_named_in_the_text_exist(document: Any) -> None:
    code = re.findall(r"`sweeps ([a-z]+)[^`\n]*`", document.prose)
    assert set(code) <= set(main.commands), f"{document.path}: {set(code) - set(main.commands)}"


def test_make_targets_shown_exist() -> None:
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


def test_no_line_of_the_help_is_cut_off() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).output.partition("Commands:")[2]
    assert all(f"  {verb} " in shown for verb in main.commands) and "..." not in shown


# ---- links


def links() -> list[Any]:
    return [
        pytest.param(document, link, id=f"{document.path}: {link}")
        for document in (*WRITTEN, *GENERATED)
        for link in document.links
    ]


@pytest.mark.parametrize(("document", "link"), links())
def test_every_link_resolves(document: Any, link: Any) -> None:
    path, _, anchor = link.partition("#")
    target = (
        posixpath.normpath(posixpath.join(posixpath.dirname(document.path), path))
        if path
        else document.path
    )
    assert target in DOCUMENTS or (ROOT / target).exists(), f"{document.path}: {link}"
    if anchor:
        assert anchor in DOCUMENTS[target].anchors, f"{target} has no #{anchor}"


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.removeprefix("docs/") for path in DOCUMENTS if path.startswith("docs/")}
    assert not {page for page in pages if f" {page}\n" not in nav}


def test_the_tests_that_the_threat_model_names_exist() -> None:
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
    row: Any,
) -> None:
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


def test_the_features_that_sweeps_lacks_are_listed() -> None:
    lacking = [row[0] for row in features() if row[1] == "–"]
    assert len(features()) >= 40 and len(lacking) >= 8


@pytest.mark.parametrize("path", ["docs/internals/architecture.md", "CONTRIBUTING.md"])
def test_the_paths_that_a_page_names_exist(path: str) -> None:
    for name in re.findall(
        r"`((?:sweeps|tests|trainers|docs|reports)/[\w./-]+)`", DOCUMENTS[path].prose
    ):
        assert "NAME" in name or (ROOT / name).exists() or name in DOCUMENTS, name


def test_every_test_marker_and_make_target_is_in_the_contributing_guide() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    guide = DOCUMENTS["CONTRIBUTING.md"]
    for marker in project["tool"]["pytest"]["ini_options"]["markers"]:
        name = marker.partition(":")[0]
        assert name == "filterwarnings" or row_of(guide, name)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in targets - {"clean", "screenshots", "bench-serving"}:
        assert row_of(guide, f"make {target}")


# ---- the diagram


def test_the_diagram_of_the_architecture_is_the_import_graph() -> None:
    drawn = import_graph.FILE.read_text(encoding="utf-8")
    assert drawn == import_graph.svg(import_graph.graph()), (
        "draw it again: .venv/bin/python -m docs.generate.import_graph"
    )


def test_the_table_of_folders_names_every_folder() -> None:
    table = PARTS["folders"]()
    assert all(f"| `{folder}` |" in table for folder in import_graph.graph())
    assert "<!-- generated: folders -->" in DOCUMENTS["docs/internals/architecture.md"].text


# ---- what is cheap is run


@pytest.mark.parametrize("path", list(console.pages()), ids=lambda path: path.name)
def test_the_output_shown_is_what_the_command_prints(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == console.renewed(text), "renew it: .venv/bin/python -m docs.generate.console"


def test_there_is_output_to_check() -> None:
    assert len(list(console.pages())) >= 4


def test_the_commands_for_editors_and_ci_run() -> None:
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
def test_sentences_have_25_words_at_most(document: Any) -> None:
    long = [
        sentence
        for sentence in sentences(document)
        if len(re.findall(r"\b[\w'’-]+\b", sentence)) > 25
    ]
    assert not long, "\n".join(long)
