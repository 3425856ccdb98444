"""A sweep of a folder, opened to be looked at from Python: its trials, its curves, its study, its bundle."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sweeps.controller import sweep_lookup
from sweeps.controller.sweep_summary import trial_state
from sweeps.core import folder_lock
from sweeps.core.command_hints import DEFAULT_ROOT
from sweeps.space.saved_space import bundle_of
from sweeps.study import record

if TYPE_CHECKING:
    import optuna

    from sweeps.bundle import Bundle


@dataclass(frozen=True)
class Best:
    """The best trial of a sweep.

    Attributes:
        number: 0, 1, ... in the sweep.
        id: the name that the commands take, `0007`.
        value: of the objective, at the trial's best step. Of repeats, what their values came to together.
        params: what the training loop got as its `config`.
        dimensions: each active dimension's name and value, as in the columns of `Sweep.trials`.
    """

    number: int
    id: str
    value: float | None
    params: dict[str, Any]
    dimensions: dict[str, Any]


class Sweep:
    """A sweep in its folder, which may be running, finished, killed or failed.

    Every property reads the folder anew, so a running sweep shows what came since. Nothing is written, and only `bundle` runs code of the
    user's.

    Attributes:
        folder: the sweep's folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def __repr__(self) -> str:
        return f"<Sweep {str(self.folder)!r}>"

    @property
    def name(self) -> str:
        """The name of the sweep's folder."""
        return self.folder.name

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial, by number.

        Returns:
            Columns: `number`; `state` (COMPLETE, PRUNED, FAIL; RUNNING; INTERRUPTED for a trial that a resume goes on with; GIVEN for an
            initial point with a known result); `value` of the objective, or `value.METRIC` for each of several, NaN without one; a column
            for each dimension that was active in any trial, by its name as `params.eta`; `seconds` on workers, over all attempts.
            A dimension is missing (NaN or NA) where it was inactive. Its column is Int64, float64, boolean, text or object.
        """
        running = folder_lock.is_driven(self.folder)
        study = record.read(self.folder)
        trials = study.trials if study is not None else ()
        metrics = [o.metric for o in study.judge.objectives] if study is not None else []
        columns: dict[str, Any] = {
            "number": pd.Series([t.number for t in trials], dtype="int64"),
            "state": pd.Series([trial_state(t, running) for t in trials], dtype="str"),
        }
        for i, name in enumerate([f"value.{metric}" for metric in metrics] if len(metrics) > 1 else ["value"]):
            columns[name] = pd.Series([t.result.values[i] if i < len(t.result.values) else None for t in trials], dtype="float64")
        for name in dict.fromkeys(name for t in trials for name in t.labels):
            columns[name] = _column([t.labels.get(name) for t in trials])
        columns["seconds"] = pd.Series([t.result.seconds for t in trials], dtype="float64")
        return pd.DataFrame(columns)

    @property
    def best(self) -> Best | None:
        """The best trial so far; None if no trial has a value, or if there are several objectives."""
        study = record.read(self.folder)
        found = study.best if study is not None else None
        if study is None or found is None:
            return None
        value = study.configurations.results()[found.number if found.origin is None else found.origin].value
        return Best(found.number, found.id, value, found.params, found.labels)

    @property
    def study(self) -> optuna.Study | None:
        """Optuna's study of the sweep, a copy in memory, for Optuna's own analyses and plots; None before the first trial."""
        return record.copied(self.folder)

    def curves(self, trial: int | str | None = None) -> pd.DataFrame:
        """Return the reported values of the metric by step.

        Args:
            trial: the number or the id of one trial, or `best`; all trials by default.

        Returns:
            Columns: `trial`, its number; `step`, 1 for the first report; `value` of the objective's metric (of several objectives of the
            first that is no cost). One row per report, by trial and step. A trial of `pbt` that took over another's checkpoint has the
            other's curve up to there.

        Raises:
            InputError: there is no such trial.
        """
        study = record.read(self.folder)
        trials = study.trials if study is not None else ()
        if trial is not None:
            trials = (sweep_lookup.trial_of(study, str(trial)),)
        rows = [(t.number, step, value) for t in trials for step, value in t.curve]
        frame = pd.DataFrame(rows, columns=["trial", "step", "value"])
        return frame.astype({"trial": "int64", "step": "int64", "value": "float64"})

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle of the sweep's winner, loaded, with the user's code that it carries.

        Raises:
            InputError: the sweep has no bundle; why, and what to do.
            BundleError: the bundle was changed or cannot be loaded.
        """
        from sweeps.bundle import load_bundle

        return load_bundle(bundle_of(self.folder))


def open(sweep: str | os.PathLike[str], *, dir: str | os.PathLike[str] | None = None) -> Sweep:
    """Open a sweep to look at it.

    Args:
        sweep: a folder, a name in the root or its beginning, or `latest`.
        dir: root of all sweeps; `sweeps-runs` in the working directory by default.

    Raises:
        InputError: no such sweep, or several.
    """
    return Sweep(sweep_lookup.find(Path(sweep), Path(dir or DEFAULT_ROOT)))


def _column(values: list[Any]) -> pd.Series:
    """Return the values of a dimension as a column of their own type; None is missing."""
    kinds = {type(v) for v in values if v is not None}
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean")
    if kinds == {int}:
        return pd.Series(values, dtype="Int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    return pd.Series(values, dtype="str" if kinds == {str} else "object")
