"""The table of trials and its CSV: columns, order, and trials without a value."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.controller.sweep_summary import SweepSummary
from sweeps.controller.trial_columns import sorted_trials
from sweeps.core.errors import InputError
from sweeps.core.trial import State
from sweeps.study.record import Record
from sweeps.terminal.trial_table import format_trials, trials_csv
from tests.commands import invoke
from tests.controller.test_sweep_lookup import made
from tests.sweep_report.test_regret import MINIMIZE, trial

SWEEP = SweepSummary("made", Path("made"), "finished", {}, None, None, "loss", 0.0, None)


def record(*values: float | None, states: tuple[State, ...] = ()) -> Record:
    trials = []
    for n, value in enumerate(values):
        one = trial(n, states[n] if states else State.COMPLETE, value)
        labels = {"params.eta": (n * 7 % 5) / 10, "params.booster": "abc"[n % 3]} if n != 3 else {}
        trials.append(
            replace(one, labels=labels, params={"eta": labels.get("params.eta"), "fixed": 3})
        )
    return Record(MINIMIZE, tuple(trials))


def ids(study: Record, by: str | None = None) -> list[int]:
    return [t.number for t in sorted_trials(study, SWEEP, by)]


def test_the_best_trial_comes_first_and_a_column_can_be_sorted_both_ways():
    study = record(0.3, 0.1, 0.2, None)
    assert ids(study) == [1, 2, 0, 3]
    assert ids(study, "loss") == [1, 2, 0, 3] and ids(study, "-loss") == [0, 2, 1, 3]
    assert ids(study, "eta") == ids(study, "PARAMS.ETA") == [0, 1, 2, 3]  # 0.0, 0.2, 0.4, missing
    assert ids(study, "-eta") == [2, 1, 0, 3]
    assert ids(study, "-booster") == [2, 1, 0, 3]


def test_only_the_named_columns_are_shown_in_their_order():
    text = format_trials(
        record(0.3, 0.1), SWEEP, 200, None, columns=("eta", "TRIAL", "cpu_seconds", "fixed")
    )
    assert [line.split() for line in text.splitlines()] == [
        ["eta", "TRIAL", "CPU_SECONDS", "fixed"],
        ["0.2", "0001", "2.0", "3"],
        ["0", "0000", "2.0", "3"],
    ]


def test_a_misspelt_column_is_named_with_its_option():
    with pytest.raises(
        InputError, match=r"--columns: `etta` is not a column of this sweep; did you mean `eta`\?"
    ):
        format_trials(record(0.3), SWEEP, 200, None, columns=("etta",))
    with pytest.raises(InputError, match="--sort: `nonsense` is not a column"):
        sorted_trials(record(0.3), SWEEP, "-nonsense")


@given(
    st.lists(st.none() | st.floats(allow_nan=True), min_size=1, max_size=8),
    st.sampled_from([None, "loss", "-loss", "-eta", "state"]),
)
def test_csv_has_every_trial_and_reads_back_exactly(values, by):
    study = record(*values)
    rows = list(csv.DictReader(io.StringIO(trials_csv(study, SWEEP, by, ()))))
    assert sorted(row["trial"] for row in rows) == [t.id for t in study.trials]
    for row in rows:
        value = study.trials[int(row["trial"])].result.value
        assert row["loss"] == ("" if value is None or value != value else str(value))
    if by == "loss":
        known = [float(row["loss"]) for row in rows if row["loss"]]
        assert known == sorted(known) and all(row["loss"] for row in rows[: len(known)])


def test_show_takes_sort_columns_and_csv(tmp_path):
    folder = made(tmp_path)
    done = invoke("show", folder, "--columns", "trial,state,eta", "--sort", "-trial")
    assert [line.split()[:2] for line in done.stdout.split("\n\n")[1].splitlines()] == [
        ["TRIAL", "STATE"],
        ["0003", "INTERRUPTED"],
        ["0002", "FAIL"],
        ["0001", "PRUNED"],
        ["0000", "COMPLETE"],
    ]
    rows = list(csv.DictReader(io.StringIO(invoke("show", folder, "--csv").stdout)))
    assert (
        rows[0]["trial"] == "0000"
        and rows[0]["loss"] == "0.25"
        and rows[0]["params.nested.depth"].isdigit()
    )
    assert (
        invoke("show", folder, "--csv", "--columns", "trial").stdout
        == "trial\n0000\n0001\n0002\n0003\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [("--csv", "--json"), ("--sort", "eta", "--trial", "best"), ("--columns", "eta", "--json")],
)
def test_options_of_the_table_are_refused_elsewhere(tmp_path, arguments):
    done = invoke("show", made(tmp_path), *arguments)
    assert done.exit_code == 2 and "is for the table of trials" in done.stderr
