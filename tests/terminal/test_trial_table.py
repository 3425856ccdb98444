"""The CSV of trials: order, and trials without a value."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import State
from sweeps.stored.sweep_summary import SweepSummary
from sweeps.study.record_reader import Record
from sweeps.terminal.trial_table import trials_csv
from tests.commands import invoke
from tests.controller.test_sweep_lookup import recorded_sweep
from tests.sweep_report.test_regret import MINIMIZE, trial

SWEEP = SweepSummary("made", Path("made"), "finished", {}, None, None, "loss", 0.0, None)


def record(*values: float | None, states: tuple[State, ...] = ()) -> Record:
    trials = []
    for n, value in enumerate(values):
        labels = {"params.eta": (n * 7 % 5) / 10, "params.booster": "abc"[n % 3]} if n != 3 else {}
        params = {"eta": labels.get("params.eta"), "fixed": 3}
        state = states[n] if states else State.COMPLETE
        trials.append(trial(n, state, value, labels=labels, params=params))
    return Record(MINIMIZE, tuple(trials))


# An infinite value counts as none.
@given(st.lists(st.none() | st.floats(allow_infinity=False), min_size=1, max_size=8))
def test_csv_has_every_trial_and_reads_back_exactly(values: Any) -> None:
    study = record(*values)
    rows = list(csv.DictReader(io.StringIO(trials_csv(study, SWEEP))))
    assert sorted(row["trial"] for row in rows) == [t.id for t in study.trials]
    for row in rows:
        value = study.trials[int(row["trial"])].result.value
        assert row["loss"] == ("" if value is None or value != value else str(value))
    known = [float(row["loss"]) for row in rows if row["loss"]]
    assert known == sorted(known) and all(row["loss"] for row in rows[: len(known)])


def test_show_prints_csv(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    rows = list(csv.DictReader(io.StringIO(invoke("show", folder, "--csv").stdout)))
    assert [row["trial"] for row in rows] == ["0000", "0001", "0002", "0003"]
    assert rows[0]["loss"] == "0.25" and rows[0]["params.nested.depth"].isdigit()
    done = invoke("show", folder, "--csv", "--json")
    assert done.exit_code == 2 and "--csv prints the table of trials" in done.stderr
