"""Read a sweep from Python: its trials, curves, study and bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import JsonValue

from sweeps.core.files import folder_lock
from sweeps.core.text.html_tables import facts_table
from sweeps.core.text.shell_text import DEFAULT_ROOT
from sweeps.space.python.saved_space import bundle_of, recorded_space
from sweeps.stored import stored_sweeps, sweep_lookup, sweep_plots
from sweeps.stored.control import TIMEOUT, SweepControl
from sweeps.stored.sweep_summary import summarize
from sweeps.study import record_reader

from .trial_frames import curves_frame, trials_frame

if TYPE_CHECKING:
    import optuna
    import plotly.graph_objects

    from sweeps.bundle.bundle_model import Bundle
    from sweeps.core.result import SweepResult
    from sweeps.exports.sweep_exports import ExportResult
    from sweeps.sweep_report.comparison import Comparison


# Number of trials that a notebook shows.
SHOWN_TRIALS = 20


@dataclass(frozen=True)
class Best:
    """The best trial of a sweep.

    Attributes:
        number: Number of the trial in the sweep: 0, 1, ...
        id: Id of the trial, such as `0007`. Commands take this id as an argument.
        value: Objective at the trial's best step. If the configuration was trained several times
            (`repeats`), the mean of the values of these trials, or the other aggregate that the
            space file names.
        params: The `config` that the training loop received.
        dimensions: Values of the active dimensions by name, with the same names as the columns of
            `Sweep.trials`.
    """

    number: int
    id: str
    value: float | None
    params: dict[str, JsonValue]
    dimensions: dict[str, JsonValue]

    def _repr_html_(self) -> str:
        """Return the trial as a table for a notebook."""
        return facts_table([("trial", self.id), ("value", self.value), *self.dimensions.items()])


class Sweep:
    """A sweep, read from its folder.

    The sweep may be running, paused, finished, interrupted, killed or failed.

    A property reads the folder each time that you access it, so the value is up to date while the
    sweep runs. Only `bundle` is loaded once and kept. Properties write nothing to the folder. No
    user code runs, unless you access `bundle` or call `export` or `resume`.

    Attributes:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def __repr__(self) -> str:
        return f"<Sweep {str(self.folder)!r}>"

    def _repr_html_(self) -> str:
        """Return the sweep as tables for a notebook: its state, and its trials."""
        summary = summarize(self.folder)
        counts = ", ".join(f"{number} {word}" for word, number in summary.trials.items() if number)
        pairs: list[tuple[str, object]] = [
            ("sweep", summary.name),
            ("state", summary.state),
            ("trials", counts or "no trial yet"),
        ]
        if summary.best is not None:
            pairs.append(("best", f"{summary.best[1]:.6g} (trial {summary.best[0]})"))
        pairs += [("problem", problem) for problem in summary.problems]
        return facts_table(pairs) + str(self.trials.to_html(max_rows=SHOWN_TRIALS, index=False))

    @property
    def name(self) -> str:
        """The name of the sweep's folder."""
        return self.folder.name

    @property
    def trials(self) -> pd.DataFrame:
        """All trials, one row for each, ordered by number.

        Returns:
            A frame with these columns:

            - `number`: the number of the trial in the sweep: 0, 1, ...
            - `state`: COMPLETE, PRUNED, FAIL, RUNNING, PAUSED (the scheduler paused the trial),
              INTERRUPTED (a resume continues the trial) or GIVEN (an initial point with a known
              result).
            - `value`: the objective, or NaN if the trial has no value. With several objectives,
              each has a column `value.METRIC`.
            - One column for each dimension that was active in any trial, such as `params.eta`. The
              type is Int64, float64, boolean, str or object. In the row of a trial in which the
              dimension was not active, the value is missing.
            - `seconds`: how long the trial ran on its workers, in seconds, summed over all
              attempts.
        """
        running = folder_lock.is_driven(self.folder)
        return trials_frame(record_reader.read(self.folder), running)

    @property
    def best(self) -> Best | None:
        """The best trial so far.

        None if no trial has a value or if the sweep has several objectives.
        """
        study = record_reader.read(self.folder)
        if study is None or (best := study.best) is None:
            return None
        return Best(best.number, best.id, study.best_value, best.params, best.labels)

    @property
    def study(self) -> optuna.Study | None:
        """An in-memory copy of the sweep's Optuna study, for Optuna's own analyses and plots.

        None before the first trial.
        """
        study: optuna.Study | None = record_reader.copy_study(self.folder)
        return study

    def curves(self, trial: int | str | None = None) -> pd.DataFrame:
        """Return the values that trials reported for the leading metric, by step.

        The leading metric is the metric of the first objective that the loop reports. Costs such as
        `seconds` are not reported by the loop.

        Args:
            trial: Number or id of one trial, or `best`. By default, all trials.

        Returns:
            A frame with one row for each report and the columns `trial` (the number), `step` (1 for
            the first report) and `value`. If the scheduler `pbt` let a trial continue from another
            trial's checkpoint, the rows up to this checkpoint have the other trial's values.

        Raises:
            InputError: There is no such trial.
        """
        study = record_reader.read(self.folder)
        trials = study.trials if study is not None else ()
        if trial is not None:
            trials = (sweep_lookup.trial_of(study, str(trial)),)
        return curves_frame(trials)

    def stop(self, trial: int | str | None = None, *, timeout: float = TIMEOUT) -> None:
        """Stop one trial at once, or stop the whole sweep and wait until its process has ended.

        A stopped trial counts as pruned. A stopped sweep keeps its finished trials and exports the
        best one. It can be resumed.

        Args:
            trial: Number or id of the trial; None for the whole sweep.
            timeout: Seconds to wait for the process that runs the sweep.

        Raises:
            InputError: There is no such trial.
            SweepsError: No process runs the sweep, the trial has ended, or the process does not
                answer.
        """
        self._control(timeout).stop(trial)

    def pause(self, *, timeout: float = TIMEOUT) -> None:
        """Let no new trial start until `resume`. Running trials continue.

        Args:
            timeout: Seconds to wait for the process that runs the sweep.

        Raises:
            SweepsError: No process runs the sweep, a pause would change nothing, or the process
                does not answer.
        """
        self._control(timeout).pause()

    def resume(self, **how: Any) -> SweepResult | None:
        """Continue the sweep.

        If the sweep is paused and its process is alive, that process starts trials again, and this
        method returns None. Otherwise, this process continues the sweep, as `sweeps.resume` does.

        Args:
            how: Arguments of `sweeps.resume`, such as `add_trials`.

        Raises:
            SweepLocked: Another process runs the sweep, and the sweep is not paused.
            SweepsError: The process does not answer, or the sweep cannot be continued.
        """
        from .api import resume

        control = self._control(TIMEOUT)
        if not how and control.is_paused():
            control.resume()
            return None
        return resume(self.folder, **how)

    def enqueue(self, params: Mapping[str, Any], *, timeout: float = TIMEOUT) -> str:
        """Let the next trial have these values.

        The search chooses the values of the other dimensions.

        Args:
            params: Values of dimensions by name, such as `{"eta": 0.1, "max_depth": 4}`.
            timeout: Seconds to wait for the process that runs the sweep.

        Returns:
            The id that the trial will have, such as `0012`.

        Raises:
            InputError: A name or a value is wrong. There is one problem for each.
            SweepsError: No process runs the sweep, the sweep takes no configurations, or the
                process does not answer.
        """
        trial = self._control(timeout).enqueue(params).trial
        assert trial is not None
        return trial

    def _control(self, timeout: float) -> SweepControl:
        return SweepControl.of(self.folder, timeout=timeout)

    def importance(self) -> pd.Series:
        """Return the importance of each dimension for the first objective, by Optuna's PED-ANOVA.

        Returns:
            The importances by dimension, the largest first. They add up to 1. `attrs["basis"]`
            describes the values from which they were computed. If the importances are unknown, the
            series is empty, and `attrs["unknown"]` gives the reason.
        """
        from sweeps.stored.sweep_comparison import sweep_importance

        importance = sweep_importance(record_reader.read(self.folder), recorded_space(self.folder))
        series = pd.Series(dict(importance.shares), dtype="float64", name="importance")
        if importance.unknown:
            series.attrs["unknown"] = importance.unknown
        else:
            series.attrs["basis"] = importance.basis
        return series

    def plot_history(self) -> plotly.graph_objects.Figure:
        """Plot the value of each trial in the order of the trials, and the best value so far.

        As in every plot, a point, a line or a bar has the trial's id, which a notebook shows when
        the mouse is over it. If there is nothing to draw yet, the figure is empty, and its caption
        gives the reason.

        Returns:
            A figure of the package Plotly. `show()` shows it, and `write_html(file)` and
            `write_image(file)` write it to a file.
        """
        return sweep_plots.plot(self.folder, "history")

    def plot_curves(self, *trials: int | str) -> plotly.graph_objects.Figure:
        """Plot the values that trials reported for the leading metric, by step.

        Args:
            trials: Numbers or ids of trials, or `best`. By default, the running trials and the best
                30 trials.

        Raises:
            InputError: There is no such trial.
        """
        study = record_reader.read(self.folder) if trials else None
        chosen = [sweep_lookup.trial_of(study, str(trial)).id for trial in trials]
        return sweep_plots.plot(self.folder, "curves", chosen=chosen)

    def plot_importance(self) -> plotly.graph_objects.Figure:
        """Plot the importance of each dimension for the first objective; see `importance`."""
        return sweep_plots.plot(self.folder, "importance")

    def plot_parallel_coordinates(self) -> plotly.graph_objects.Figure:
        """Plot parallel coordinates: one line for each trial.

        There is one axis for the objective and for each dimension. If there are more than 10
        dimensions, the 10 most important ones are shown. Dimensions like `loguniform` have
        logarithmic axes. A trial in which a dimension was not active is at `not set`.
        """
        return sweep_plots.plot(self.folder, "parallel")

    def plot_slice(self, dimension: str | None = None) -> plotly.graph_objects.Figure:
        """Plot the objective by the value of one dimension.

        Args:
            dimension: Name of the dimension, such as `params.eta` or `eta`. By default, the most
                important one.

        Raises:
            InputError: The space has no such dimension.
        """
        return sweep_plots.plot(self.folder, "slice", name=dimension)

    def plot_winner(self) -> plotly.graph_objects.Figure:
        """Plot the gain of the exported model over other trials on new rows, with intervals."""
        return sweep_plots.plot(self.folder, "winner")

    def plot_cost(self) -> plotly.graph_objects.Figure:
        """Plot the value of each trial by what the trial cost."""
        return sweep_plots.plot(self.folder, "cost")

    def plot_timeline(self) -> plotly.graph_objects.Figure:
        """Plot when each trial ran, one bar for each trial."""
        return sweep_plots.plot(self.folder, "timeline")

    def plot_pareto(self) -> plotly.graph_objects.Figure:
        """Plot the values of two or three objectives, with the Pareto front.

        Raises:
            InputError: The sweep does not have two or three objectives.
        """
        return sweep_plots.plot(self.folder, "pareto")

    def compare(self, *others: Sweep | str | os.PathLike[str]) -> Comparison:
        """Compare this sweep to others: results, regret, spaces, importances, best configurations.

        Args:
            others: The other sweeps, as `sweeps.open` returns or takes them. Names are looked up in
                the folder that has this sweep.

        Returns:
            The comparison. `frames()` returns its parts as DataFrames, and a notebook shows it as
            tables.
        """
        from sweeps.stored.sweep_comparison import compare_sweeps

        names = [str(sweep.folder if isinstance(sweep, Sweep) else sweep) for sweep in others]
        return compare_sweeps([str(self.folder), *names], self.folder.parent)

    def export(self, trial: int | str | None = None, **how: Any) -> list[ExportResult]:
        """Write the bundle of a trial, or of several trials. The sweep must not be running.

        Args:
            trial: Number or id of the trial. The default is the best trial.
            how: Options of the command `sweeps export`: `top`, `pareto`, `refit`, `latest`,
                `ensemble`, `output`, `trust`, `cpus` and `gpus`. For example, `refit=True` trains
                the trial again on the train and valid rows together.

        Returns:
            The bundles, the best trial first. Each has the `path` of its folder, which
            `sweeps.load_bundle` takes, and `notes`.

        Raises:
            InputError: There is no such trial, its checkpoint was deleted, the options contradict
                each other, or the output exists.
            SweepLocked: The sweep is running.
            BundleError: The predictions of the bundle differ from the predictions during training.
            SweepFailed: The training loop failed during the refit.
        """
        from sweeps.exports.sweep_exports import export

        trial_id = None if trial in (None, "best") else str(trial)
        return export(self.folder, trial=trial_id, **how)

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle of the best trial, loaded. Loading imports the user code inside the bundle.

        Raises:
            InputError: The sweep has no bundle. The message gives the reason and a remedy.
            BundleError: The bundle was changed or cannot be loaded.
        """
        from sweeps.bundle.bundle_model import load_bundle

        return load_bundle(bundle_of(self.folder))


def open(sweep: str | os.PathLike[str], *, dir: str | os.PathLike[str] | None = None) -> Sweep:
    """Open a sweep for reading.

    Args:
        sweep: The sweep's folder, its name in the root (or the beginning of its name), or `latest`.
            Or the address of a sweep in a store, such as `s3://BUCKET/PREFIX/SWEEP`, whose files
            are then copied to a folder in the root.
        dir: Root folder of all sweeps, or the address of all sweeps; by default `sweeps-runs` in
            the working directory.

    Raises:
        InputError: No sweep matches, or several sweeps match.
    """
    return Sweep(stored_sweeps.fetch_named(str(sweep), str(dir or DEFAULT_ROOT)))
