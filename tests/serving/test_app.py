"""The application: what it answers, together and alone, and what it tells of itself."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.bundle import schema
from sweeps.bundle.manifest import ColumnSchema
from sweeps.core.errors import InputError
from sweeps.serving import request_checks
from sweeps.serving.batching import Batcher
from sweeps.serving.prediction_app import make_app
from tests.serving import served
from tests.serving.asking import ask
from tests.serving.malformed import GOOD


def send(app: Any, path: Any, body: Any = None, method: str = "POST") -> Any:
    return asyncio.run(
        ask(app, path, json.dumps(body).encode() if body is not None else b"", method)
    )


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    text = frame.to_json(orient="records", date_format="iso", double_precision=15)
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def test_records_and_a_list_are_answered_as_the_bundle_answers() -> None:
    bundle = served.bundle()
    app, rows = make_app(bundle), records(served.raw(7))
    expected = bundle.predict(pd.DataFrame(rows))
    status, answer = send(app, "/predict", {"records": rows})
    assert (
        status == 200
        and [r["prediction"] for r in answer["predictions"]] == expected["prediction"].tolist()
    )
    assert [r["probability_yes"] for r in answer["predictions"]] == expected[
        "probability_yes"
    ].tolist()
    assert send(app, "/predict", rows) == (200, answer)


def test_odd_rows() -> None:
    app = make_app(served.bundle())
    odd = [
        GOOD | {"extra": 1},
        dict.fromkeys(GOOD),
        GOOD | {"city": "Atlantis", "heating": "coal", "rooms": 2.5},
    ]
    assert [len(send(app, "/predict", {"records": [row]})[1]["predictions"]) for row in odd] == [
        1,
        1,
        1,
    ]
    assert send(app, "/predict", {"records": []}) == (200, {"predictions": []})


@pytest.mark.integration
@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_what_is_asked_together_is_answered_as_alone(sizes: Any) -> None:
    bundle = served.bundle()
    app, rows = make_app(bundle), records(served.raw(60))
    parts = [rows[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]

    async def together() -> Any:
        return await asyncio.gather(
            *(ask(app, "/predict", json.dumps(part).encode()) for part in parts)
        )

    assert asyncio.run(together()) == [send(app, "/predict", part) for part in parts]


@pytest.mark.parametrize("error", [InputError("rows", "odd"), SystemExit(3), MemoryError()])
def test_requests_that_wait_are_asked_at_once_and_a_bad_one_harms_no_other(error: Any) -> None:
    """The first holds the model; the others are one batch, and asked again alone."""
    entered, go, sizes = threading.Event(), threading.Event(), []

    class Picky(served.Model):
        def predict(self, frame: Any) -> Any:
            sizes.append(len(frame))
            entered.set()
            go.wait(10)
            if (frame["area"] > 3).any():
                raise error
            return super().predict(frame)

    batcher = Batcher(served.bundle(Picky()))
    good, bad = (
        request_checks.read(json.dumps([GOOD | {"area": area}]).encode(), COLUMNS)
        for area in (40.0, 400.0)
    )

    async def run() -> Any:
        asks = [asyncio.ensure_future(batcher.predict(good))]
        await asyncio.to_thread(entered.wait, 10)
        asks += [asyncio.ensure_future(batcher.predict(rows)) for rows in (good, bad, good)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*asks, return_exceptions=True)

    first, second, refused, third = asyncio.run(run())
    assert first == second == third and isinstance(refused, Exception)
    assert sizes[:2] == [1, 3] and json.loads(asyncio.run(batcher.predict(good)))["predictions"]


def test_what_it_tells_of_itself() -> None:
    app = make_app(served.bundle())
    assert send(app, "/health", method="GET") == (
        200,
        {"status": "ok"},
    )
    schema = send(app, "/schema", method="GET")[1]
    assert schema["model"] == {"sweep": "houses", "trial": "0003"}
    assert [c["type"] for c in schema["columns"]] == [
        "integer",
        "string",
        "double",
        "boolean",
        "datetime",
        "category",
    ]
    api = send(app, "/openapi.json", method="GET")[1]
    body = api["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    record = body["anyOf"][0]["properties"]["records"]["items"]
    assert record["required"] == list(GOOD) and record["properties"]["rooms"] == {
        "type": ["number", "null"]
    }
    answer = api["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]
    predictions = answer["schema"]["properties"]["predictions"]
    assert predictions["items"]["properties"]["prediction"]["enum"] == ["no", "yes"]


def test_prometheus_gets_the_metrics() -> None:
    app = make_app(served.bundle())
    send(app, "/predict", {"records": [GOOD, GOOD]})
    send(app, "/predict", {"records": [{}]})
    send(app, "/predict", {"records": [GOOD | {"city": "Rome"}, GOOD | {"city": None}]})
    text = send(app, "/metrics", method="GET")[1]
    for line in (
        'sweeps_requests_total{path="/predict",status="200"} 2.0',
        'sweeps_unseen_values{column="city"} 1.0',
        'sweeps_unseen_values{column="heating"} 0.0',
        'sweeps_requests_total{path="/predict",status="422"} 1.0',
        "sweeps_rows_total 4.0",
        'sweeps_request_seconds_count{path="/predict"} 3.0',
    ):
        assert line in text


def test_a_client_that_goes_in_the_middle_of_its_body_is_no_error() -> None:
    app = make_app(served.bundle())
    assert asyncio.run(ask(app, "/predict", [b"[{", None]))[0] == 499
    metrics = send(app, "/metrics", method="GET")[1]
    assert 'sweeps_requests_total{path="/predict",status="499"} 1.0' in metrics


@pytest.mark.parametrize(
    "error",
    [
        ValueError("too odd\n(see there)"),
        ZeroDivisionError("too odd"),
        KeyError("too odd"),
        AttributeError("lower"),
        RuntimeError("shape"),
    ],
)
def test_error_about_rows_is_422_and_error_of_model_is_500(error: Any) -> None:
    class Picky(served.Model):
        def predict(self, frame: pd.DataFrame) -> np.ndarray:
            if frame["built"].isna().any():
                raise MemoryError
            raise error

    app = make_app(served.bundle(Picky()))
    said = (
        f"rows: the model cannot predict these rows: {type(error).__name__}: "
        f"{str(error).splitlines()[0]}"
    )
    assert send(app, "/predict", [GOOD]) == (422, {"detail": [{"rule": said}]})
    with pytest.raises(MemoryError):
        send(app, "/predict", [GOOD | {"built": None}])
    metrics = send(app, "/metrics", method="GET")[1]
    for status in (422, 500):
        assert f'sweeps_requests_total{{path="/predict",status="{status}"}} 1.0' in metrics


def test_value_refused_by_training_columns_is_named_with_row() -> None:
    app = make_app(served.bundle())
    offset = "1990-05-01T12:00:00+02:00"
    rule = "must hold dates without a time zone, such as 2026-01-31T12:00:00, as in training"
    refused = {"field": "built", "row": 1, "rule": rule, "value": f'"{offset}"'}
    assert send(app, "/predict", [GOOD, GOOD | {"built": offset}]) == (422, {"detail": [refused]})


COLUMNS = schema.infer_schema(served.raw())
DIRECT = served.bundle(names=("rooms", "city", "area", "garden"))


@pytest.mark.parametrize("bad", [b"", b"{", b"\xff"])
def test_no_json_is_400(bad: bytes) -> None:
    with pytest.raises(request_checks.Refused) as e:
        request_checks.read(bad, [])
    assert e.value.status == 400


VALUES = st.fixed_dictionaries(
    {
        "rooms": st.just(float("nan")) | st.floats(-1e9, 1e9) | st.integers(-9, 9).map(float),
        "city": st.none() | st.sampled_from(["Lyon", "Pau", "Atlantis", ""]),
        "area": st.just(float("nan")) | st.floats(-1e300, 1e300),
        "garden": st.booleans() | st.none(),
    }
)


@pytest.mark.integration
@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES, max_size=6))
def test_the_direct_way_gives_the_same_bits(rows: Any) -> None:
    """Lists straight into the steps, beside a DataFrame through `predict`."""
    bundle = DIRECT
    values = {n: [row[n] for row in rows] for n in ("rooms", "city", "area", "garden")}
    direct = bundle.predict_values(values, len(rows))
    frame = pd.DataFrame({n: pd.Series(v, dtype=object) for n, v in values.items()})
    pd.testing.assert_frame_equal(direct, bundle.predict(frame), check_exact=True)


def test_a_model_that_drops_rows_is_422() -> None:
    class Drops(served.Model):
        def predict(self, frame: Any) -> Any:
            return super().predict(frame.dropna())

    app = make_app(served.bundle(Drops()))
    assert send(app, "/predict", [GOOD])[0] == 200
    said = (
        "rows: the model cannot predict these rows: ValueError: `predict` of the model returned 1 "
        "outputs for 2 rows, but "
        "must return one output for each row"
    )
    assert send(app, "/predict", [GOOD, GOOD | {"built": None}]) == (
        422,
        {"detail": [{"rule": said}]},
    )


def test_first_wrong_values_are_named_and_more_are_mentioned() -> None:
    status, body = send(make_app(served.bundle()), "/predict", [GOOD | {"rooms": "x"}] * 30)
    assert status == 422 and [p.get("row") for p in body["detail"]] == [*range(20), None]
    assert body["detail"][-1] == {
        "rule": "only the first 20 problems are listed; there may be more"
    }


def test_nested_lists_are_taken_for_an_array() -> None:
    import jsonschema

    column = ColumnSchema(name="image", type="tensor", dtype="uint8", shape=[2, 3])
    good, bad = (
        [[1, 2, 3], [4, 5, 6]],
        (
            [[1, 2, 3]],
            [[1, 2], [3]],
            [[1, 2, 300]] * 2,
            "x",
            None,
            3,
            {"data": [1]},
            [[None] * 3] * 2,
        ),
    )
    (cell,) = request_checks.read(json.dumps([{"image": good}]).encode(), [column]).values["image"]
    assert isinstance(cell, np.ndarray) and cell.dtype == "uint8" and cell.tolist() == good
    for value in bad:
        with pytest.raises(request_checks.Refused) as e:
            request_checks.read(json.dumps([{"image": good}, {"image": value}]).encode(), [column])
        assert e.value.status == 422 and [(p["field"], p["row"]) for p in e.value.problems] == [
            ("image", 1)
        ]
    manifest = served.bundle().manifest.model_copy(update={"columns": [column]})
    request, _ = request_checks.schemas(manifest)
    jsonschema.validate([{"image": good}], request)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{"image": good[:1]}], request)


def test_a_bundle_that_knows_no_columns_is_refused() -> None:
    bundle = served.bundle()
    bundle.manifest = bundle.manifest.model_copy(update={"columns": []})
    with pytest.raises(InputError) as e:
        make_app(bundle)
    assert e.value.problems[0].place == str(bundle.path)
