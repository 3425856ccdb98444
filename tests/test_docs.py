"""The README says what there is: every verb, option, key, domain, step and file; and what it shows can be used as it stands."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import click
import pytest

import sweeps
from sweeps import trial
from sweeps.cli import main
from sweeps.controller import api
from sweeps.core import errors
from sweeps.space import load, section_models
from sweeps.space.data_section import SKLEARN
from sweeps.space.domains import DOMAINS, RULES
from sweeps.space.load import TOP
from sweeps.space.space_sections import SCALING, SECTIONS
from sweeps.space.step_names import RAY_STEPS, REQUIRED

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SPACES = sorted((ROOT / "search_spaces").rglob("*.y*ml"))
TUNED = {"preprocessor", "scaling", "params"}
SECTION_KEYS = {
    "trainer": section_models.LoopKeys,
    "data": section_models.DataKeys,
    "objective": section_models.Objective,
    "search": section_models.Search,
    "scheduler": section_models.Scheduler,
    "repeats": section_models.Repeats,
    "limits": section_models.Limits,
    "checkpoints": section_models.Checkpoints,
}
FIELDS = [(section, field) for section, model in SECTION_KEYS.items() for field in dataclasses.fields(model)]


class Block(NamedTuple):
    language: str
    text: str


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)]
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
CODE = set(re.findall(r"`([^`\n]+)`", PROSE))
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PROSE.splitlines() if line.startswith("| ")]


def row_of(name: str) -> list[str]:
    """The row of a table whose first cell is this name in code, maybe with arguments behind it."""
    found = [row for row in ROWS if re.match(rf"`{re.escape(name)}(:[^`]*)?`", row[0])]
    assert len(found) == 1, f"`{name}` has {len(found)} rows in the README's tables"
    return found[0]


# ---- the command line


def test_every_block_of_code_names_its_language_and_is_closed():
    assert len(re.findall(r"^```", README, re.MULTILINE)) == 2 * len(BLOCKS) > 10


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_every_verb_and_option_is_documented(verb):
    begin = next((i for i, row in enumerate(ROWS) if row[0].startswith(f"`sweeps {verb}")), None)
    assert begin is not None, f"`sweeps {verb}` has no row in the table of commands"
    end = next(i for i, row in enumerate(ROWS) if i > begin and row[0])
    signature, *options = (" ".join(row) for row in ROWS[begin:end])
    for parameter in main.commands[verb].params:
        if isinstance(parameter, click.Argument):
            name = parameter.make_metavar(click.Context(main)).strip("[]")
            assert re.search(rf"\b{name}\b", signature), f"{verb}: {parameter.name}"
        else:
            for name in parameter.opts:
                assert any(re.search(rf"`{name}[ `]", row) for row in options), f"sweeps {verb} {name} is not in the README"


def test_the_options_of_the_table_are_there():
    known = {name for command in (main, *main.commands.values()) for p in command.get_params(click.Context(command)) for name in p.opts}
    shown = {name for row in ROWS for name in re.findall(r"`(--?[a-z][\w-]*)", " ".join(row))}
    assert shown <= known, f"no such options: {shown - known}"


def commands() -> list[str]:
    """Every `sweeps ...` that a reader could type."""
    blocks = [b.text for b in BLOCKS if b.language in ("bash", "text", "console")]
    return re.findall(r"^(?:\$ )?\s*(?:\.venv/bin/)?sweeps ([a-z].*)$", "\n".join(blocks), re.MULTILINE)


def test_there_are_commands_to_check():
    assert len(commands()) >= 3


@pytest.mark.parametrize("line", commands())
def test_every_command_shown_parses(line):
    verb, *arguments = shlex.split(line, comments=True)
    assert verb in main.commands
    main.commands[verb].make_context(verb, arguments)


def test_make_targets_shown_are_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {t for b in BLOCKS if b.language == "bash" for t in re.findall(r"^make (\w+)", b.text, re.MULTILINE)}
    assert {"run", "test"} <= shown <= targets


def test_exit_codes_are_documented():
    codes = {0} | {e.exit_code for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.SweepsError)}
    for code in codes:
        assert any(row[0] == str(code) for row in ROWS), f"exit code {code}"


def test_the_result_is_documented():
    for field in dataclasses.fields(api.SweepResult):
        assert field.name in CODE or any(b.language == "json" and f'"{field.name}"' in b.text for b in BLOCKS), field.name


def test_the_public_names_are_documented():
    shown = {name for code in CODE for name in re.findall(r"sweeps\.(\w+)", code)}
    assert set(sweeps.__all__) <= shown, set(sweeps.__all__) - shown


# ---- the space file


def test_every_section_has_its_keys_in_the_table():
    assert set(TOP) == {"name", "space", "constraints", *SECTION_KEYS} and set(SECTIONS) == TUNED
    row_of("name")
    row_of("constraints")
    for path in (*(f"space.{s}" for s in SECTIONS), *(f"space.scaling.{s}" for s in SCALING)):
        row_of(path)


@pytest.mark.parametrize(("section", "field"), FIELDS, ids=[f"{section}.{field.name}" for section, field in FIELDS])
def test_every_key_is_documented_with_its_default(section, field):
    default, text = row_of(f"{section}.{field.name}")[1:3]
    required = field.default is dataclasses.MISSING
    assert (default == "required") == required
    if not required and field.default is not None and (section, field.name) != ("limits", "max_trials"):  # 0 there: not given
        shown = f"[{', '.join(field.default)}]" if isinstance(field.default, tuple) else str(field.default)
        assert default.strip("`") == ("none" if field.default == () else shown)
    for word in get_args(get_type_hints(SECTION_KEYS[section])[field.name]):
        if isinstance(word, str):
            assert f"`{word}`" in text, f"{section}.{field.name}: {word}"


def test_the_table_names_no_key_that_is_not_there():
    fields = {f"{s}.{f.name}" for s, model in SECTION_KEYS.items() for f in dataclasses.fields(model)}
    fields |= {f"space.{s}" for s in SECTIONS} | {f"space.scaling.{s}" for s in SCALING}
    for row in ROWS:
        if found := re.fullmatch(r"`((?:space|" + "|".join(SECTION_KEYS) + r")\.[\w.]+)`", row[0]):
            assert found[1] in fields


@pytest.mark.parametrize("form", [section_models.ByColumn, section_models.ByTime, section_models.ByGroup])
def test_every_form_of_a_split_is_documented(form):
    names = [f.name for f in dataclasses.fields(form)]
    assert any(re.fullmatch(r"`\{" + r", ".join(f"{n}: [^,]+" for n in names) + r"\}`", row[0]) for row in ROWS), names


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_is_documented_with_its_arguments_and_bounds(domain):
    name, meaning = row_of(domain)[:2]
    if domain in RULES:
        rule = RULES[domain]
        assert name == f"`{domain}: [{', '.join(rule.args)}]`"
        if rule.integer:
            assert "excluded" in meaning
        if "upper" in rule.args and "q" in rule.args:
            assert "bounds included" in meaning


@pytest.mark.parametrize("step", RAY_STEPS)
def test_every_step_is_documented_with_its_parameters(step):
    rows = [row for row in ROWS if f"`{step}`" in row[0]]
    assert len(rows) == 1, f"{step} has {len(rows)} rows"
    if step == "LabelEncoder":
        return
    # said of all, or without a use here
    for parameter in set(RAY_STEPS[step]) - {"output_columns", "quantile_precision"}:
        assert f"`{parameter}`" in rows[0][1], f"{step}: {parameter}"
    assert not REQUIRED.get(step) or "required" in rows[0][1]


def test_the_steps_of_the_table_are_there():
    begin = next(i for i, row in enumerate(ROWS) if row[0] == "step")
    names = set()
    for row in ROWS[begin + 1 :]:
        if not re.match(r"`[A-Z]", row[0]):
            break
        names |= set(re.findall(r"`(\w+)`", row[0]))
    assert names == set(RAY_STEPS)


def test_the_data_sets_are_documented():
    assert all(name in " ".join(row_of("data.train")) for name in SKLEARN)


# ---- trainers


def test_our_trainers_are_documented_with_their_parameters():
    for file in (ROOT / "trainers").glob("[a-z]*.py"):
        row_of(file.stem)
    tree = ast.parse((ROOT / "trainers" / "torch_tabular.py").read_text())
    params = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Params")
    names = [node.target.id for node in params.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    assert names and all(f"`{name}`" in row_of("torch_tabular")[1] for name in names)


def test_what_a_loop_may_ask_is_documented():
    public: set[str] = {f.name for f in dataclasses.fields(trial.Current)} | set(vars(trial.Current))
    for name in public:
        if not name.startswith("_"):
            assert any(re.match(rf"{name}\b", code) for code in CODE), f"sweeps.trial.current().{name}"


def test_every_state_is_documented():
    for state in trial.State:
        assert any(row[0] == (state.name if state is not trial.State.RUNNING else "interrupted") for row in ROWS), state


# ---- what is shown can be used


def space_blocks() -> list[Any]:
    found = [b.text for b in BLOCKS if b.language == "yaml" and {"trainer", "space"} <= set(re.findall(r"^(\w+):", b.text, re.MULTILINE))]
    return [pytest.param(text, id=text.split()[1]) for text in found]


def test_there_are_space_files_to_check():
    assert len(space_blocks()) >= 2
    assert any(len(p.values[0].splitlines()) <= 15 for p in space_blocks())


@pytest.mark.parametrize("text", space_blocks())
def test_every_space_file_shown_loads(text, tmp_path):
    for block in BLOCKS:  # the modules shown, by the name in their first line
        if block.language == "python" and (name := re.match(r"# (\w+\.py)\n", block.text)):
            (tmp_path / name[1]).write_text(block.text)
    file = tmp_path / "space.yaml"
    file.write_text(text)
    assert load(file).shapes


@pytest.mark.parametrize("text", [b.text for b in BLOCKS if b.language == "python"])
def test_every_piece_of_python_compiles(text):
    compile(text, "README.md", "exec")


def test_there_are_spaces_that_ship():
    assert len(SPACES) >= 2


@pytest.mark.parametrize("file", SPACES, ids=lambda f: f.stem)
def test_every_space_that_ships_validates(file):
    assert load(file).shapes


# ---- links and files


@pytest.mark.parametrize("link", [link for link in re.findall(r"\]\(([^)\s]+)\)", PROSE) if "://" not in link])
def test_every_relative_link_resolves(link):
    path, _, anchor = link.partition("#")
    assert not path or (ROOT / path).exists()
    if anchor and not path:
        headings = re.findall(r"^#+ (.+)$", PROSE, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def tree() -> list[str]:
    """The paths of the annotated file tree, folders with a `/` behind them."""
    section = README[README.index("\n## Files\n") :]
    lines = re.search(r"^```text\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert lines is not None
    paths, folders = [], {0: ""}
    for line in lines[1].splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        paths.append(folders[depth] + name)
        if name.endswith("/"):
            folders[depth + 1] = paths[-1]
    return paths


@pytest.mark.parametrize("path", tree())
def test_the_tree_names_what_is_there(path):
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


def test_the_tree_names_every_folder_at_the_top():
    try:
        done = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, timeout=10
        )
    except OSError:
        pytest.skip("no git here to say which folders are ours")
    if done.returncode:
        pytest.skip("not a git checkout")
    folders = {f"{name.split('/')[0]}/" for name in done.stdout.splitlines() if "/" in name and not name.startswith(".")}
    assert folders <= set(tree()), folders - set(tree())


@pytest.mark.parametrize("package", ["sweeps", "trainers"])
def test_the_tree_names_every_module_of_the_first_floor(package):
    here = {f"{package}/{p.name}{'/' * p.is_dir()}" for p in (ROOT / package).iterdir() if not p.name.startswith(("_", ".", "py.typed"))}
    assert here <= set(tree()), here - set(tree())


def test_the_tests_that_the_page_of_trust_names_are_there():
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[^`]+)`", text))
    assert len(named) > 10 and not {name for name in named if not (ROOT / name).exists()}
