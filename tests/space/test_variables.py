"""Environment variables in the space file: `${NAME}` and `${NAME:-default}`, and where secrets may
stand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.core.text import environment_variables
from sweeps.core.text.environment_variables import VariableError, resolve
from sweeps.core.text.secrets import masked
from sweeps.space import load
from sweeps.space.python.saved_space import save_space, saved_space

TEXT = """\
trainer: xgboost
data:
  train: ${DATA_DIR}/rows.csv
  label: y
  valid: 0.2
objective: {metric: valid-logloss, goal: minimize}
limits:
  max_trials: ${N:-16}
space:
  params: {eta: {loguniform: [0.01, 1]}}
"""


@pytest.fixture
def space(write: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load a file with these environment variables."""

    def do(text: Any = TEXT, *overrides: Any, **environment: Any) -> Any:
        for name in ("DATA_DIR", "N", "DB_PASSWORD", "DB"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return load(write(text), overrides)

    return do


def problem(space: Any, *args: Any, **environment: Any) -> Any:
    with pytest.raises(InputError) as caught:
        space(*args, **environment)
    (only,) = caught.value.problems
    return str(only)


def test_a_variable_is_replaced_and_typed(space: Any) -> None:
    loaded = space(DATA_DIR="/data", N="8")
    assert (loaded.data.train, loaded.limits.max_trials) == ("/data/rows.csv", 8)
    assert loaded.variables == {"DATA_DIR": "/data", "N": "8"}
    assert loaded.text == TEXT


def test_a_default_is_used_if_the_variable_is_unset_or_empty(space: Any) -> None:
    assert space(DATA_DIR="/data").limits.max_trials == 16
    assert space(DATA_DIR="/data", N="").limits.max_trials == 16


def test_a_missing_variable_is_one_line_with_its_place(space: Any) -> None:
    assert problem(space) == (
        "space.yaml:3:10: data.train: the environment variable DATA_DIR is not set; set it, or "
        "write a default such as ${DATA_DIR:-value}"
    )


def test_a_wrong_value_is_shown_as_it_is(space: Any) -> None:
    assert problem(space, DATA_DIR="d", N="many").endswith("got many")


def test_quotes_make_text_and_two_dollars_a_dollar(space: Any) -> None:
    loaded = space(
        TEXT.replace("eta:", "a: '${N}', b: '$${N}', c: $5, eta:").replace(
            "xgboost", "{loop: json:load}"
        ),
        DATA_DIR="d",
        N="8",
    )
    assert [loaded.sections["params"][key] for key in "abc"] == ["8", "${N}", "$5"]


def test_a_malformed_variable(space: Any) -> None:
    text = problem(space, TEXT.replace("${N:-16}", "${1N}"), DATA_DIR="d")
    assert text.startswith(
        "space.yaml:8:15: limits.max_trials: `${1N}` is not a variable; write ${NAME}"
    )


def test_an_override_may_have_variables(space: Any) -> None:
    assert space(TEXT, "data.label=${DB}", DATA_DIR="d", DB="target").data.label == "target"
    assert "--set data.label=${M}" in problem(space, TEXT, "data.label=${M}", DATA_DIR="d")


# ---- secrets

SQL = TEXT.replace(
    "${DATA_DIR}/rows.csv",
    '{"pandas:read_sql": {sql: "select 1", con: "postgresql://me:${DB_PASSWORD}@${DB:-host}/db"}}',
)


def test_a_secret_stays_in_the_arguments_of_a_loader(space: Any) -> None:
    loaded = space(SQL, DB_PASSWORD="hunter2", DB="db1")
    assert loaded.data.args["con"] == "postgresql://me:${DB_PASSWORD}@db1/db"
    assert (loaded.variables, loaded.secrets) == ({"DB": "db1", "N": "16"}, ("DB_PASSWORD",))
    assert "hunter2" not in repr(vars(loaded))
    assert (
        resolve(loaded.data.args, {"DB_PASSWORD": "hunter2"})["con"]
        == "postgresql://me:hunter2@db1/db"
    )


def test_a_secret_that_is_missing_is_reported_early(space: Any) -> None:
    assert (
        "data.train.pandas:read_sql.con: the environment variable DB_PASSWORD is not set"
        in problem(space, SQL)
    )


def test_a_uri_with_a_password_is_a_secret_too(space: Any) -> None:
    loaded = space(
        SQL.replace("postgresql://me:${DB_PASSWORD}@${DB:-host}/db", "${DB}"),
        DB="postgresql://me:hunter2@host/db",
    )
    assert (loaded.data.args["con"], loaded.secrets) == ("${DB}", ("DB",))


def test_a_secret_must_not_stand_where_it_would_be_recorded(space: Any) -> None:
    text = problem(space, TEXT.replace("${DATA_DIR}", "${DB_PASSWORD}"), DB_PASSWORD="hunter2")
    assert (
        "data.train: DB_PASSWORD is a secret, and this value would be recorded; pass it with "
        "`runtime_env.env_vars`" in text
    )
    assert "hunter2" not in text


def test_the_variables_of_workers_are_never_recorded(space: Any, tmp_path: Path) -> None:
    loaded = space(
        TEXT + "runtime_env: {env_vars: {TOKEN: '${DB_PASSWORD}'}}\n",
        DATA_DIR="d",
        DB_PASSWORD="hunter2",
    )
    assert loaded.runtime_env.env_vars == {"TOKEN": "hunter2"}
    save_space(tmp_path, loaded, 0.0)
    assert all("hunter2" not in file.read_text() for file in tmp_path.iterdir())


def test_a_resumed_sweep_has_the_same_values(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    save_space(folder, space(SQL, DB_PASSWORD="hunter2", DB="db1", N="8"), 0.0)
    assert json.loads((folder / "origin.json").read_text())["variables"] == {"DB": "db1", "N": "8"}
    for name in ("DB_PASSWORD", "DB", "N"):
        monkeypatch.delenv(name)
    again, _ = saved_space(folder)
    assert (again.limits.max_trials, again.data.args["con"]) == (
        8,
        "postgresql://me:${DB_PASSWORD}@db1/db",
    )
    assert again.missing_secrets == ("DB_PASSWORD",)


def test_a_loader_gets_the_value(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.data.sources.data_files import Source
    from sweeps.data.sources.sources import read_source

    code = (
        "import pandas as pd\ndef rows(key, plain):\n"
        "    return pd.DataFrame({'a': [key], 'b': [plain]})\n"
    )
    (tmp_path / "variable_rows.py").write_text(code)
    monkeypatch.setenv("API_KEY", "hunter2")
    table = read_source(
        Source(
            "variable_rows:rows",
            Path(tmp_path),
            "data.train",
            {"key": "${API_KEY}", "plain": "$${API_KEY}"},
        )
    )
    assert table.to_pylist() == [{"a": "hunter2", "b": "${API_KEY}"}]


@pytest.mark.parametrize("key", ["API_KEY", "SHOP"])
def test_the_error_of_a_loader_shows_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    from sweeps.data.sources.data_files import Source
    from sweeps.data.sources.sources import read_source

    code = "def rows(key):\n    raise OSError(f'{key!r} and {key.partition(chr(64))[0]}')\n"
    (tmp_path / "failing_rows.py").write_text(code)
    monkeypatch.setenv(key, """mysql://me:it's/a "key"@host""")
    with pytest.raises(InputError) as caught:
        read_source(Source("failing_rows:rows", tmp_path, "data.train", {"key": f"${{{key}}}"}))
    assert "OSError: " in str(caught.value)
    assert "it" not in str(caught.value).partition("OSError")[2]


def test_a_problem_shows_no_value_of_env_vars(space: Any) -> None:
    text = f"{SQL}runtime_env: {{env_vars: {{A: true, HF_TOKEN: {'hf-secret' * 20}}}}}\n"
    problem_text = problem(space, text, DB_PASSWORD="hunter2")
    assert "hf-secr" not in problem_text and "HF_TOKEN: ***" in problem_text


def test_a_variable_that_gets_a_secret_is_one(space: Any) -> None:
    text = f"{SQL}runtime_env: {{env_vars: {{A: 'key ${{DB_PASSWORD}}', B: plain-text}}}}\n"
    loaded = space(text, DB_PASSWORD="hunter2-hunter2")
    shown = [masked(value) for value in loaded.runtime_env.env_vars.values()]
    assert shown == ["key ***", "plain-text"]


# ---- texts


@given(st.text(alphabet="ab$ {}", max_size=12))
def test_a_text_is_resolved_or_refused(text: Any) -> None:
    try:
        replaced = environment_variables.replace(text, lambda reference: f"<{reference.name}>")
    except VariableError as e:
        assert "is not a variable" in str(e)
        return
    assert replaced == text or "${" in text


@given(st.text(max_size=20))
def test_an_escaped_text_is_itself(text: Any) -> None:
    assert environment_variables.resolve(text.replace("${", "$${"), {}) == text or "$${" in text
