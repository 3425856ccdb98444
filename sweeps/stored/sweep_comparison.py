"""Read sweeps from their folders, and compare them."""

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.core.errors import InputError
from sweeps.core.files import provenance
from sweeps.core.files.stores import recorded_store
from sweeps.evaluation.paired import ComparedModel, read_model
from sweeps.space import Space
from sweeps.space.python.saved_space import recorded_space
from sweeps.study import record_reader
from sweeps.study.record_reader import Record
from sweeps.sweep_report.compared_sweep import ComparedSweep
from sweeps.sweep_report.comparison import Comparison, compare
from sweeps.sweep_report.importance import Importance
from sweeps.sweep_report.plot_data import plot_data

from .stored_sweeps import find, open_copy
from .sweep_summary import SweepSummary, summarize


def compare_sweeps(sweeps: Sequence[str], root: str | Path) -> Comparison:
    """Compare sweeps. Nothing is written, and no user code runs. The sweeps may be running.

    Args:
        sweeps: At least two sweeps, each in any form that `stored_sweeps.find` accepts.
        root: Root folder or address of all sweeps.

    Raises:
        InputError: There are fewer than two sweeps, a sweep does not exist or is given twice, or no
            sweep has a trial.
    """
    places = [find(sweep, root) for sweep in sweeps]
    if len(places) < 2:
        raise InputError(
            "sweeps compare",
            f"needs at least two sweeps, got {len(places)}; `sweeps ls` lists them",
        )
    for sweep, place in zip(sweeps, places, strict=True):
        if places.count(place) > 1:
            raise InputError(sweep, "is given twice; give different sweeps")
    with contextlib.ExitStack() as stack:
        compared = []
        for place in places:
            folder, _ = stack.enter_context(open_copy(str(place), root))
            compared.append(read_for_comparison(folder))
        return compare(compared)


def read_for_comparison(folder: Path) -> ComparedSweep:
    """Read a sweep from its folder, to compare it with others.

    A file that cannot be read becomes a problem in the comparison.
    """
    summary = summarize(folder)
    problems = [str(problem) for problem in summary.problems]
    study: Record | None = None
    try:
        study = record_reader.read(folder)
    except InputError as e:
        problems += [str(problem) for problem in e.problems if str(problem) not in problems]
    space = space_or_none(folder, problems)
    return ComparedSweep(
        name=folder.name,
        place=recorded_store(folder) or str(folder),
        state=summary.state,
        algorithm=summary.algorithm,
        record=study,
        space=space,
        importance=sweep_importance(study, space) if space is not None else Importance(),
        test=_test_score(summary, study),
        drivers=tuple(_starts(folder)),
        problems=tuple(problems),
        model=_exported_model(folder, summary, study),
    )


def _exported_model(
    folder: Path, summary: SweepSummary, study: Record | None
) -> ComparedModel | None:
    """Return the exported model of a sweep that has ended; None if it cannot be compared."""
    if summary.result is None or study is None or study.best is None:
        return None
    try:
        return read_model(folder, summary.result.best, study.best.trial.data, study.metric)
    except (ValueError, KeyError, TypeError):  # a stranger's files can have any values
        return None


def sweep_importance(study: Record | None, space: Space) -> Importance:
    """Return the importances of a sweep's dimensions. A stranger's study can have any values."""
    if study is None:
        return Importance(unknown="there is no trial")
    try:
        importance = plot_data(study, space).importance
    except Exception as e:
        return Importance(unknown=f"the importance cannot be computed: {type(e).__name__}: {e}")
    if len(study.objectives.objectives) > 1 and importance.shares:
        return replace(importance, basis=f"{importance.basis}, for {study.metric}")
    return importance


def space_or_none(folder: Path, problems: list[str]) -> Space | None:
    """Return the saved space of a sweep; None if it cannot be read.

    The reason is then added to `problems`.
    """
    try:
        return recorded_space(folder)
    except InputError as e:
        problems.append(f"the space file cannot be read: {e.problems[0]}")
        return None


def _test_score(summary: SweepSummary, study: Record | None) -> float | None:
    """Return the score of the best trial on the test split.

    Return None if the sweep has not ended with this trial as the best one.
    """
    best = None if summary.result is None else summary.result.best
    if not best or study is None or study.best is None or study.best.id != best["trial"]:
        return None
    test: float | None = best["test"]
    return test


def _starts(folder: Path) -> Iterator[float]:
    """Yield when the sweep was started and each time resumed, in seconds since the epoch."""
    for entry in provenance.read_entries(folder):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            yield datetime.datetime.fromisoformat(entry["began"]).timestamp()
