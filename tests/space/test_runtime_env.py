"""The section `runtime_env`: its keys, its paths, and what is hidden of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.core.result import SweepResult
from sweeps.core.text.secrets import LONG_VALUE, hide_values
from sweeps.space import load
from sweeps.study.objectives import Objectives
from sweeps.study.record_reader import Record
from sweeps.sweep_report.content import report
from tests.space.test_load import top


def loaded(folder: Any, section: str) -> Any:
    (folder / "space.yaml").write_text(top(runtime_env=section))
    return load(folder / "space.yaml")


def test_paths_start_at_the_space_file_and_the_rest_is_rays(tmp_path: Path) -> None:
    for name in ("libs/helper", "files"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tool.whl").touch()
    space = loaded(
        tmp_path,
        "{env_vars: {TOKEN: abc, OMP_NUM_THREADS: 2}, pip: [polars==1.31], py_modules: "
        "[libs/helper, tool.whl, s3://b/c.zip], "
        "working_dir: files}",
    )
    assert space.runtime_env.for_ray() == {
        "env_vars": {"TOKEN": "abc", "OMP_NUM_THREADS": "2"},
        "pip": ["polars==1.31"],
        "py_modules": [str(tmp_path / "libs/helper"), str(tmp_path / "tool.whl"), "s3://b/c.zip"],
        "working_dir": str(tmp_path / "files"),
    }


@pytest.mark.parametrize("section", ["null", "{}", "{env_vars: {}, pip: []}"])
def test_an_empty_section_changes_nothing(tmp_path: Path, section: str) -> None:
    assert loaded(tmp_path, section).runtime_env.for_ray() == {}


@pytest.mark.parametrize(
    "section, problem",
    [
        (
            "[a]",
            (
                "4:14: runtime_env: must be a mapping with keys env_vars, pip, py_modules, "
                "working_dir, image_uri, got [a]"
            ),
        ),
        ("{container: a}", "4:15: runtime_env.container: unknown key; did you mean `image_uri`?"),
        (
            "{env_vars: [A]}",
            (
                "4:25: runtime_env.env_vars: must be a mapping of names to text or whole numbers, "
                "such as {OMP_NUM_THREADS: 1}, got [A]"
            ),
        ),
        (
            "{env_vars: {A: true}}",
            (
                "4:25: runtime_env.env_vars: the value of A must be text; put quotes around it, "
                "got "
                "{A: true}"
            ),
        ),
        (
            "{env_vars: {a-b: c}}",
            (
                "`a-b` is not the name of an environment variable; use letters, digits and _, "
                "with no "
                "digit first"
            ),
        ),
        ("{pip: [3]}", "4:21: runtime_env.pip.0: must be text, got 3"),
        ("{py_modules: [libs]}", "4:28: runtime_env.py_modules.0: there is no folder libs in "),
        ("{working_dir: libs}", "4:28: runtime_env.working_dir: there is no folder libs in "),
        (
            "{image_uri: a, pip: [b]}",
            "4:34: runtime_env.pip: cannot be combined with `image_uri`; put the packages and ",
        ),
        (
            "{image_uri: {choice: [a, b]}}",
            (
                "4:27: runtime_env.image_uri: cannot be tuned (`choice`); only values under "
                "`space:` "
                "can"
            ),
        ),
    ],
)
def test_a_problem_is_one_line_with_its_place(tmp_path: Path, section: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, section)
    (only_problem,) = caught.value.problems
    assert problem in str(only_problem)


FORMS = [
    "A: {0}",
    "A: '{0}'",
    'A: "{0}"',
    "{{A: {0}, b: 1}}",
    "A: |\n  {0}",
    "A: &x {0}\nB: *x",
    "'A': {0}",
    "runtime_env.env_vars.A={0}",
]


@pytest.mark.parametrize("form", FORMS)
@given(
    st.text(
        st.characters(categories=("L", "N"), include_characters="-_.+/="), min_size=1, max_size=40
    )
)
def test_values_of_environment_variables_are_hidden(form: Any, value: Any) -> None:
    if "|" in form and len(value) < LONG_VALUE:
        return  # a short value in a block of its own stays
    hidden = hide_values(form.format(value), {"A": value})
    assert "***" in hidden and hidden.replace("***", "").count(value) <= form.replace(
        "{0}", ""
    ).count(value)


def test_a_mlflow_artifact_a_report_and_a_bundle_show_names_only(tmp_path: Path) -> None:
    space = loaded(tmp_path, "{env_vars: {HF_TOKEN: hf_secret_of_mine, N: 3}}")
    assert "runtime_env: {env_vars: {HF_TOKEN: '***', N: '***'}}" in space.public(space.text)
    assert "hf_secret_of_mine" not in repr(space.runtime_env)
    result = SweepResult("shown", tmp_path, {}, None, None, None, mlflow={}, fits=0, seconds=1.0)
    text, page = vars(report(Record(Objectives(space.objectives), ()), space, result)).values()
    for shown in (text, page):
        assert "HF_TOKEN" in shown
        assert "hf_secret_of_mine" not in shown
