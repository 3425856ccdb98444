"""The example row of a bundle: the curl command, `/example`, `/docs` and OpenAPI."""

from __future__ import annotations

import asyncio
import json
import shlex

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle.manifest import CHECK_ROWS, DATA_FOLDER, ColumnSchema
from sweeps.bundle.model import Bundle
from sweeps.serving import docs_page
from sweeps.serving.app import make_app
from sweeps.serving.example import LONGEST_BODY, curl_command, example_of
from tests.serving import served
from tests.serving.asking import ask


@pytest.fixture
def bundle(tmp_path) -> Bundle:
    """A bundle with example rows; the first row has a missing value."""
    made = served.bundle()
    rows = served.raw(5)
    rows.loc[0, "area"] = np.nan
    (tmp_path / DATA_FOLDER).mkdir(parents=True)
    rows.to_parquet(tmp_path / DATA_FOLDER / CHECK_ROWS)
    made.path = tmp_path
    return made


def get(app, path):
    return asyncio.run(ask(app, path, method="GET"))


def test_the_example_is_a_row_that_the_server_predicts(bundle):
    body = example_of(bundle)
    assert body is not None and set(body["records"][0]) == set(served.raw().columns)
    assert (
        None not in body["records"][0].values()
        and body["records"][0]["built"] == "1990-01-02T00:00:00"
    )
    app = make_app(bundle)
    status, answer = asyncio.run(ask(app, "/predict", json.dumps(body).encode()))
    assert status == 200 and len(answer["predictions"]) == 1
    assert get(app, "/example") == (200, body)
    content = get(app, "/openapi.json")[1]["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert content["application/json"]["example"] == body


def test_an_example_with_a_missing_value_is_not_in_openapi_which_has_no_null(bundle):
    served.raw(2).assign(area=np.nan).to_parquet(bundle.path / DATA_FOLDER / CHECK_ROWS)
    app = make_app(bundle)
    assert get(app, "/example")[1]["records"][0]["area"] is None
    assert (
        "example"
        not in get(app, "/openapi.json")[1]["paths"]["/predict"]["post"]["requestBody"]["content"][
            "application/json"
        ]
    )


def test_the_page_needs_nothing_else_and_has_the_example(bundle):
    status, page = get(make_app(bundle), "/docs")
    assert status == 200 and "1990-01-02T00:00:00" in page and "must be a number or null" in page
    assert (
        "http://" not in page
        and "https://" not in page
        and " src=" not in page
        and "<link" not in page
    )
    status, _ = get(make_app(bundle), "/")
    assert status == 307


def test_no_row_of_the_data_is_shown_if_the_user_says_so_or_there_is_none(bundle):
    for app in (make_app(bundle, example=False), make_app(served.bundle())):
        assert get(app, "/example")[0] == 404
        status, page = get(app, "/docs")
        assert status == 200 and "1990" not in page and "rooms" in page
        assert (
            "example"
            not in get(app, "/openapi.json")[1]["paths"]["/predict"]["post"]["requestBody"][
                "content"
            ]["application/json"]
        )


def test_rows_that_json_does_not_have_are_no_example(bundle):
    file = bundle.path / DATA_FOLDER / CHECK_ROWS
    served.raw(1).assign(rooms=[b"x"]).to_parquet(file)
    assert example_of(bundle) is None
    served.raw(1).iloc[:0].to_parquet(file)
    assert example_of(bundle) is None
    file.write_text("no table")
    assert example_of(bundle) is None


def test_arrays_and_missing_values_are_converted(tmp_path, bundle):
    frame = pd.DataFrame(
        {"image": [np.ones((2, 2)).tolist()], "n": pd.array([None], dtype="Int64"), "t": [pd.NaT]}
    )
    columns = [
        ColumnSchema(name="image", type="tensor", dtype="float64", shape=[2, 2]),
        ColumnSchema(name="n", type="integer", dtype="Int64"),
        ColumnSchema(name="t", type="datetime", dtype="datetime64[us]"),
    ]
    bundle.manifest = bundle.manifest.model_copy(update={"columns": columns})
    frame.to_parquet(bundle.path / DATA_FOLDER / CHECK_ROWS)
    assert example_of(bundle) == {
        "records": [{"image": [[1.0, 1.0], [1.0, 1.0]], "n": None, "t": None}]
    }


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20),
        max_size=4,
    )
)
def test_a_shell_passes_the_body_of_the_command_on_unchanged(row):
    body = {"records": [row]}
    words = shlex.split(curl_command("http://127.0.0.1:8000", body, needs_token=False))
    assert (
        words[:3] == ["curl", "-s", "http://127.0.0.1:8000/predict"]
        and json.loads(words[-1]) == body
    )


def test_a_long_body_is_fetched_and_a_token_is_not_printed():
    body = {"records": [{"image": [0.5] * LONGEST_BODY}]}
    command = curl_command("http://h:1", body, needs_token=True)
    token = '-H "Authorization: Bearer $SWEEPS_SERVE_TOKEN"'
    assert (
        command == f"curl -s {token} http://h:1/example | curl -s {token} http://h:1/predict -H "
        "'Content-Type: application/json' -d @-"
    )


@given(st.text(), st.text())
def test_no_name_or_value_becomes_markup(name, value):
    field = {"name": f"<b>{name}", "type": "string", "rule": "must be text or null"}
    page = docs_page.docs_page(
        f"<i>{name}",
        "d",
        {"sweep": f"<u>{value}"},
        [field],
        {"records": [{f"<b>{name}": f"</textarea>{value}"}]},
    )
    assert (
        "<b>" not in page
        and "<i>" not in page
        and "<u>" not in page
        and page.count("</textarea>") == 1
    )
