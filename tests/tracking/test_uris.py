"""A tracking URI that MLflow can do nothing with is refused before a sweep starts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sweeps import InputError, cli
from sweeps.tracking.mlflow.uris import check
from tests.commands import space_of


@pytest.mark.parametrize(
    "uri, said",
    [
        ("nonsense://x", "no store for `nonsense`"),
        ("htp://host:5000", "did you mean `http`"),
        ("./mlruns", "sqlite:///"),
        ("file:///tmp/mlruns", "sqlite:///"),
        ("http://", "names nothing"),
        ("postgresqll://me:hidden@host/db", "did you mean `postgresql`"),
    ],
)
def test_what_is_refused(uri, said):
    with pytest.raises(InputError, match=said) as e:
        check(uri, "--tracking-uri")
    assert str(e.value).startswith("--tracking-uri: ") and "hidden" not in str(e.value)


@pytest.mark.parametrize(
    "uri",
    [
        "http://host:5000",
        "https://me@host/path",
        "sqlite:///x.db",
        "postgresql+psycopg2://me@host/db",
        "databricks",
        "databricks://profile",
    ],
)
def test_what_is_not(uri):
    check(uri, "--tracking-uri")


def test_run_says_so_and_leaves_nothing(tmp_path):
    file = space_of(tmp_path, "plain")
    done = CliRunner().invoke(cli.main, ["run", str(file), "--dir", str(tmp_path / "runs"), "--tracking-uri", "nonsense://x"])
    assert done.exit_code == 2 and "--tracking-uri: nonsense://x" in done.output and not (tmp_path / "runs").exists()
