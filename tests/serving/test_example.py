"""The example row of a bundle: the curl command, `/example`, and OpenAPI, from which `/docs` is
made.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from sweeps.bundle.bundle_model import Bundle
from sweeps.serving.example import EXAMPLE_FILE, LONGEST_BODY, curl_command, example_of
from sweeps.serving.prediction_app import make_app
from tests.serving import served
from tests.serving.asking import ask


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A bundle with example rows; the first row has a missing value."""
    bundle = served.bundle()
    bundle.path = tmp_path
    rows = served.raw(5)
    rows.loc[0, "area"] = np.nan
    store(bundle, rows)
    return bundle


def store(bundle: Bundle, rows: pd.DataFrame) -> None:
    """Store example rows as MLflow does."""
    text = rows.to_json(orient="split", index=False, date_format="iso", double_precision=15)
    (bundle.path / EXAMPLE_FILE).write_text(text)


def get(app: Any, path: Any) -> Any:
    return asyncio.run(ask(app, path, method="GET"))


def test_the_example_is_a_row_that_the_server_predicts(bundle: Any) -> None:
    body = example_of(bundle)
    assert body is not None and set(body["records"][0]) == set(served.raw().columns)
    (row,) = body["records"]
    assert None not in row.values() and str(row["built"]).startswith("1990-01-02T00:00:00")
    app = make_app(bundle)
    status, answer = asyncio.run(ask(app, "/predict", json.dumps(body).encode()))
    assert status == 200 and len(answer["predictions"]) == 1
    assert get(app, "/example") == (200, body)
    content = get(app, "/openapi.json")[1]["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert content["application/json"]["example"] == body


def test_openapi_has_no_example_with_missing_value(bundle: Any) -> None:
    store(bundle, served.raw(2).assign(area=np.nan))
    app = make_app(bundle)
    assert get(app, "/example")[1]["records"][0]["area"] is None
    assert (
        "example"
        not in get(app, "/openapi.json")[1]["paths"]["/predict"]["post"]["requestBody"]["content"][
            "application/json"
        ]
    )


def test_the_page_loads_nothing_from_the_network(bundle: Any) -> None:
    app = make_app(bundle)
    status, page = get(app, "/docs")
    assert status == 200 and "https://" not in page and "http://" not in page
    for address in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert get(app, address)[0] == 200
    assert get(app, "/")[0] == 307


def test_no_row_of_the_data_is_shown_if_the_user_says_so_or_there_is_none(bundle: Any) -> None:
    for app in (make_app(bundle, example=False), make_app(served.bundle())):
        assert get(app, "/example")[0] == 404
        assert get(app, "/docs")[0] == 200
        assert (
            "example"
            not in get(app, "/openapi.json")[1]["paths"]["/predict"]["post"]["requestBody"][
                "content"
            ]["application/json"]
        )


def test_rows_that_cannot_be_sent_are_no_example(bundle: Any) -> None:
    store(bundle, served.raw(1).assign(rooms="many"))
    assert example_of(bundle) is None
    store(bundle, served.raw(1).iloc[:0])
    assert example_of(bundle) is None
    (bundle.path / EXAMPLE_FILE).write_text("no rows")
    assert example_of(bundle) is None


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20),
        max_size=4,
    )
)
def test_a_shell_passes_the_body_of_the_command_on_unchanged(row: Any) -> None:
    body = {"records": [row]}
    words = shlex.split(curl_command("http://127.0.0.1:8000", body, needs_token=False))
    assert (
        words[:3] == ["curl", "-s", "http://127.0.0.1:8000/predict"]
        and json.loads(words[-1]) == body
    )


def test_a_long_body_is_fetched_and_a_token_is_not_printed() -> None:
    image: list[JsonValue] = [0.5] * LONGEST_BODY
    body: dict[str, list[dict[str, JsonValue]]] = {"records": [{"image": image}]}
    command = curl_command("http://h:1", body, needs_token=True)
    token = '-H "Authorization: Bearer $SWEEPS_SERVE_TOKEN"'
    assert (
        command == f"curl -s {token} http://h:1/example | curl -s {token} http://h:1/predict -H "
        "'Content-Type: application/json' -d @-"
    )
