"""Conclude a search: export the best trial and build the result of the sweep."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from sweeps.controller import outcome
from sweeps.core.errors import SweepsError
from sweeps.core.result import SweepResult
from sweeps.core.trial import Trial
from sweeps.space.saved_space import roots_of
from sweeps.study import storage

if TYPE_CHECKING:
    from sweeps.controller.controller import SweepController
    from sweeps.report import Drawing


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """Outcome of a search.

    Attributes:
        result: The result of the sweep.
        error: Why the sweep counts as failed; None if it does not.
        best: The best trial; None if there is none, and with several objectives.
        ended: When the search ended, in seconds since the epoch.
        drawing: A process that draws the figures of the report.
    """

    result: SweepResult
    error: SweepsError | None
    best: Trial | None
    ended: float
    drawing: Drawing


def conclude(controller: SweepController, trust: bool, *, mlflow: dict[str, Any], fits: int, notes: tuple[str, ...]) -> Conclusion:
    """Export the best trial of a search that has ended, and build the result.

    Args:
        controller: The controller of the search.
        trust: True to read pickles in the sweep's folder that this user's key has not signed.
        mlflow: Where in MLflow the sweep is.
        fits: Number of preprocessors that were fitted.
        notes: Notes about the data.
    """
    from sweeps.bundle import export as trial_export
    from sweeps.report import Drawing

    store, space, folder = controller.study_store, controller.space, controller.folder
    drawing = Drawing(folder, storage.environment(folder))  # It draws while the best trial is exported and Ray shuts down.
    failures = controller.progress.failures
    results, number, front = store.results(), store.winner(), store.front()
    counts = outcome.counts(results.values())
    shown = next(iter(front), number)
    controller.publish_stage("writing the report" if number is None else "exporting the winner")
    notes += outcome.notes(counts, failures, space.constraints, None if shown is None else results[shown], bool(front))
    exported, error = None, None
    if number is not None:
        exported = trial_export.export_trial(folder, space, store, number, folder, roots_of(space), trust=trust)
        notes, error = (*notes, *exported.notes), exported.error
    elif not front:
        error = outcome.failed(counts, failures, controller.reason, folder)
    result = SweepResult(
        sweep=folder.name,
        dir=folder,
        trials=counts,
        best=exported.best if exported else None,
        bundle=exported.bundle if exported else None,
        checkpoint=exported.checkpoint if exported else None,
        mlflow=mlflow,
        fits=fits,
        seconds=round(time.time() - controller.began, 2),
        reason=controller.reason,
        notes=notes,
        front=tuple(trial_export.described(store, n) for n in front),
        freed=dataclasses.asdict(controller.cleaner.freed) if controller.cleaner else None,
    )
    ended = time.time()
    controller.publish_stage("writing the report")
    return Conclusion(result, error, None if number is None else store.trial(number), ended, drawing)
