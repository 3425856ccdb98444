"""A tracking URI that MLflow can do nothing with is refused before a sweep starts."""

from __future__ import annotations

import pytest

from sweeps import InputError
from sweeps.tracking.mlflow.uris import check_uri


@pytest.mark.parametrize(
    "uri, message",
    [
        ("nonsense://x", "no store for `nonsense`"),
        ("htp://host:5000", "did you mean `http`"),
        ("./mlruns", "sqlite:///"),
        ("file:///tmp/mlruns", "sqlite:///"),
        ("http://", "a host or a path must follow"),
        ("postgresqll://me:hidden@host/db", "did you mean `postgresql`"),
    ],
)
def test_a_uri_without_a_store_is_refused(uri: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as e:
        check_uri(uri, "--tracking-uri")
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
def test_a_uri_with_a_store_is_accepted(uri: str) -> None:
    check_uri(uri, "--tracking-uri")
