"""The reference documents every verb, option, key, domain, step and public name."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import click
import pytest

import sweeps
from docs.generate import python_api, space_file
from sweeps import trial
from sweeps.bundle.bundle_model import Bundle
from sweeps.cli import main
from sweeps.core import errors
from sweeps.core.plugins import plugin_registry
from sweeps.core.result import SweepResult
from sweeps.core.trial import State
from sweeps.space.model.domains import DOMAINS, RULES
from sweeps.space.model.step_names import BUILTIN_STEPS, required_parameters
from sweeps.space.parse.section_checks import fragments
from sweeps.space.parse.top_level_keys import TOP
from sweeps.space.sections import data_models
from sweeps.space.sections.data_section import SKLEARN
from sweeps.space.sections.search_sections import scheduler_keys
from sweeps.space.sections.space_sections import SCALING, SECTIONS
from tests.documents import (
    COMMAND_LINE,
    DOCUMENTS,
    MANUAL,
    ROOT,
    SPACE_FILE,
    row_of,
    rows,
)

# Metrics that look like keys of the space file.
IN_MLFLOW = ("checkpoints.freed", "objective.METRIC")


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_every_verb_and_option_is_in_the_reference(verb: Any) -> None:
    section = COMMAND_LINE.text.partition(f"\n## `sweeps {verb}`")[2].partition("\n## ")[0]
    assert section
    for parameter in main.commands[verb].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert all(option in section for option in parameter.opts), f"{verb} {parameter.opts}"


def test_every_exit_code_is_in_the_reference() -> None:
    codes = {0} | {
        e.exit_code
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, errors.SweepsError)
    }
    for page in (COMMAND_LINE, DOCUMENTS["docs/reference/errors.md"]):
        assert all(row_of(page, str(code)) for code in codes)


def test_every_key_of_the_result_is_in_the_reference() -> None:
    page = DOCUMENTS["docs/reference/sweep-files.md"]
    for field in dataclasses.fields(SweepResult):
        assert row_of(page, field.name)[1], field.name


def test_the_glossary_explains_each_word_once_and_names_a_page() -> None:
    entries = [
        row
        for row in rows(DOCUMENTS["docs/reference/glossary.md"])
        if row[0] not in ("word", "---")
    ]
    words = [re.sub(r" \(`.*", "", row[0]) for row in entries]
    assert len(words) == len(set(words)) >= 50
    assert all(row[1].endswith(".") and re.fullmatch(r"\[.+\]\(.+\)", row[2]) for row in entries)


def test_every_section_and_key_of_the_space_file_is_in_the_reference() -> None:
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


def test_keys_named_in_the_text_exist() -> None:
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
def test_every_form_of_a_split_is_documented(form: Any) -> None:
    names = [f.name for f in dataclasses.fields(form)]
    pattern = r"`\{" + r", ".join(f"{n}: [^,]+" for n in names) + r"\}`"
    for page in (SPACE_FILE, DOCUMENTS["docs/how-to/own-data.md"]):
        assert any(re.fullmatch(pattern, row[0]) for row in rows(page)), names


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_is_in_the_reference_with_its_arguments_and_bounds(domain: Any) -> None:
    name, meaning = row_of(SPACE_FILE, domain)[:2]
    if domain in RULES:
        rule = RULES[domain]
        assert name == f"`{domain}: [{', '.join(rule.args)}]`"
        if rule.integer:
            assert "excluded" in meaning
        if "upper" in rule.args and "q" in rule.args:
            assert "ounds" in meaning and "included" in meaning


@pytest.mark.parametrize("step", BUILTIN_STEPS)
def test_every_step_is_in_the_reference_with_its_parameters(step: Any) -> None:
    said = row_of(SPACE_FILE, step)[1]
    assert all(f"`{parameter}`" in said for parameter in BUILTIN_STEPS[step])
    assert not required_parameters(step) or "required" in said


def test_the_data_sets_are_documented() -> None:
    assert all(
        f"`{name}`" in row_of(DOCUMENTS["docs/how-to/own-data.md"], "sklearn:NAME")[1]
        for name in SKLEARN
    )


def test_the_reference_of_python_documents_the_public_names_and_no_others() -> None:
    assert python_api.documented() == set(sweeps.__all__)


TELL_OF_TAGS = tuple(
    f"docs/how-to/{page}.md"
    for page in ("mlflow", "export", "limits", "objectives", "earlier-sweeps", "new-rows")
)


def test_names_of_sweeps_in_the_text_exist() -> None:
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
        tags |= {
            "data_fingerprint",
            "space",
            "manifest_sha256",
            "schema",
            "learned_from",
            "new_rows",
        }
        named = set(re.findall(r"\bsweeps\.(\w+)", code))
        if document.path in TELL_OF_TAGS:
            named -= tags
        assert named <= public | {"pbt", "__all__"}, f"{document.path}: {named - public}"


def test_the_loop_context_is_documented() -> None:
    page = DOCUMENTS["docs/how-to/loop-context.md"]
    code = re.findall(r"`([^`\n]+)`", page.prose)
    public = {f.name for f in dataclasses.fields(trial.Current)} | set(vars(trial.Current))
    for name in public:
        if not name.startswith("_"):
            assert any(re.match(rf"{name}\b", one) for one in code), (
                f"sweeps.trial.current().{name}"
            )


def test_every_state_is_documented() -> None:
    page = DOCUMENTS["docs/how-to/limits.md"]
    for state in State:
        assert any(
            row[0] == (state.name if state is not State.RUNNING else "interrupted")
            for row in rows(page)
        ), state


def test_the_built_in_trainers_are_documented_with_their_parameters() -> None:
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
def test_the_tables_of_plug_ins_have_a_row_for_every_built_in_one(
    page: str, heading: str, kind: str
) -> None:
    section = f"\n{DOCUMENTS[page].text}".partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(named) == sorted(plugin_registry.names(kind))
