"""A key that does not fit `data.ingest: stream` is refused in one line with the next step."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.space import load
from tests.space.test_load import top

OWN = '{loop: "json:load"}'
REFUSED = [
    (
        "xgboost",
        "valid: 0.2, label: y",
        (
            "trainer: `xgboost` needs the whole table in memory; write `ingest: memory`, or bring "
            "your own"
        ),
    ),
    (
        OWN,
        "valid: {folds: 3}",
        "data.valid: a cross-validation needs all rows in memory; write `ingest: memory`",
    ),
    (
        OWN,
        "valid: {time: day, last: 0.2}",
        "data.valid: a stream has no latest rows before it ends; write these rows to a file",
    ),
    (OWN, "valid: 0.2, test: 0.1", "data.test: a stream has no test split; leave this key out"),
    (
        OWN,
        "valid: 0.2, label: [y, z]",
        "data.label: a stream has a label of one column; write `ingest: memory`",
    ),
    (
        OWN,
        "valid: 0.2, weight: w",
        "data.weight: streamed rows have no weights; write `ingest: memory`",
    ),
    (
        OWN,
        "valid: 0.2, label: y, class_weight: {grid: [balanced, null]}",
        "data.class_weight: streamed rows have no weights",
    ),
]


@pytest.mark.parametrize(("trainer", "data", "message"), REFUSED)
def test_a_key_that_needs_all_rows_is_refused(
    lines: Any, trainer: Any, data: Any, message: Any
) -> None:
    (line,) = lines(top(trainer=trainer, data=f"{{train: d.csv, ingest: stream, {data}}}"))
    assert message in line
    assert line.endswith("this file has `data.ingest: stream`")


def test_a_step_that_needs_all_rows_is_refused(lines: Any) -> None:
    space = "{preprocessor: {grid: [StandardScaler, RobustScaler]}, params: {eta: {grid: [1]}}}"
    (line,) = lines(
        top(trainer=OWN, data="{train: d.csv, valid: 0.2, ingest: stream}", space=space)
    )
    assert (
        "space.preprocessor: RobustScaler cannot be fitted on a stream; use StandardScaler or "
        "MinMaxScaler" in line
    )


@pytest.mark.parametrize(
    "valid", ["0.2", "v.csv", "{column: split, value: valid}", "0.2, group: g"]
)
def test_splits_that_a_stream_can_have(write: Any, valid: str) -> None:
    text = top(
        trainer=OWN, data=f"{{train: d.csv, valid: {valid}, ingest: stream, rows: 0.5, drop: [id]}}"
    )
    assert load(write(text)).data.ingest == "stream"


def test_other_words_are_refused(lines: Any) -> None:
    (line,) = lines(top(data="{train: d.csv, label: y, valid: 0.2, ingest: disk}"))
    assert "data.ingest: must be auto, memory or stream, got disk" in line


ON_ROWS = "{name: asha, resource: data.rows, max_t: 9}"
UNFIT = [
    (
        "{train: d.csv, label: y, valid: {folds: 9}}",
        ON_ROWS,
        "scheduler.resource: data.rows does not go with a cross-validation",
    ),
    (
        "{train: d.csv, label: y, valid: 0.2, rows: {grid: [0.1, 1]}}",
        ON_ROWS,
        "data.rows: must not be tuned, because the scheduler",
    ),
    (
        "{train: d.csv, label: y, valid: 0.2}",
        "{name: asha, resource: data.rows, max_t: 1}",
        "must be greater than grace_period, because",
    ),
    (
        "{train: d.csv, label: y, valid: 0.2}",
        "{name: asha, resource: rows, max_t: 9}",
        "must be step or data.rows, got rows; did you mean",
    ),
    (
        "{train: d.csv, label: y, valid: 0.2}",
        "{name: median, resource: data.rows, max_t: 9}",
        "scheduler.resource: is a key of asha, hyperband, not of median",
    ),
]


@pytest.mark.parametrize(("data", "scheduler", "message"), UNFIT)
def test_a_key_that_does_not_fit_a_scheduler_that_counts_rows_is_refused(
    lines: Any, data: Any, scheduler: Any, message: Any
) -> None:
    (line,) = lines(top(data=data, scheduler=scheduler))
    assert message in line


def test_streams_elastic_gangs_and_loops_without_data_do_not_count_rows(lines: Any) -> None:
    (line,) = lines(
        top(trainer=OWN, data="{train: d.csv, valid: 0.2, ingest: stream}", scheduler=ON_ROWS)
    )
    assert (
        "scheduler.resource: a stream cannot be cut into nested parts; write `ingest: memory`"
        in line
    )
    space = "{scaling: {num_workers: {elastic: [1, 2]}}, params: {eta: {grid: [1]}}}"
    (line,) = lines(
        top(data="{train: d.csv, label: y, valid: 0.2}", scheduler=ON_ROWS, space=space)
    )
    assert (
        "space.scaling.num_workers: must not be elastic, because each run on more rows starts "
        "from scratch" in line
    )
    (line,) = lines(top(trainer=OWN, data=None, scheduler=ON_ROWS))
    assert (
        "scheduler.resource: data.rows needs the section `data`, but this loop reads its own data"
        in line
    )


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_scheduler_can_count_rows(write: Any, name: str) -> None:
    space = load(
        write(
            top(
                data="{train: d.csv, label: y, valid: 0.2, rows: 0.5}",
                scheduler=ON_ROWS.replace("asha", name),
            )
        )
    )
    assert space.scheduler.counts_rows and space.scheduler.max_t == 9
