"""Run the training loop once for each fold of a cross-validation.

Each fold is one step of the trial.

The loop's own reports stay in this process. After each fold, the trial reports the mean over the
folds so far. The checkpoint of such a report has the results and the models of these folds, so that
a trial that continues does not train them again.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import ray.train

from sweeps.core import loop_context
from sweeps.core.best_step import StepOrder
from sweeps.core.files.checkpoint_files import fold_folder
from sweeps.core.loop_context import BEST_FOLD_STEP, Current

from .loop_run import RankLoop, best_step, scratch_folder
from .trial_session import TrialSession

# The file of a checkpoint with the results of the folds so far
RESULTS_FILE = "folds.json"


class FoldRun(RankLoop):
    """One run of the loop on a fold, on one rank. The copy has the best model.

    Attributes:
        predictions: The predictions that the loop reported last before the copied checkpoint.
    """

    predictions: np.ndarray | None = None

    def _keeps(self, model_step: int) -> bool:
        """Return whether the new model is at least as good as that of the copy."""
        key = self.job.order.key
        kept = self.model_step
        is_best = kept is None or key(self.metrics[model_step]) <= key(self.metrics[kept])
        if is_best:
            self.predictions = loop_context.current().predictions
        return is_best


def run_folds(session: TrialSession, current: Current, train: Callable[[RankLoop], None]) -> None:
    """Train and report the folds that the trial's checkpoint does not contain.

    Args:
        session: The session of the trial, which gets one report for each fold.
        current: Description of the trial. The loop gets a copy for each fold.
        train: Function that runs the loop. The functions of `ray.train` then call the session of
            the fold.

    Raises:
        ValueError: The loop reported nothing in a fold.
    """
    with scratch_folder(session) as scratch:
        results, finals = _restore(session, scratch)
        for number in range(len(results) + 1, session.job.folds + 1):
            data = session.cache.folds[number - 1]
            fold = FoldRun(session, data, fold_folder(scratch, number))
            done = fold.run(current, train, f"in fold {number} of {session.job.folds}")
            predictions = fold.predictions if fold.model_step else done.predictions
            if predictions is not None and session.rank == 0:
                np.save(reported_file(scratch, number), predictions)
            finals.append(done.final)
            results.append(result_of(fold.metrics, session.job.order))
            current.final = mean_of(finals)
            _report(session, scratch, results, finals=finals)


def reported_file(checkpoint: Path, number: int) -> Path:
    """Return the file with the predictions that the loop has reported in a fold.

    Args:
        checkpoint: Folder of a checkpoint.
        number: Number of the fold, starting with 1.
    """
    return checkpoint / f"predictions-{number}.npy"


def result_of(reports: Mapping[int, Mapping[str, float]], order: StepOrder) -> dict[str, float]:
    """Return the metrics of a fold: those at the loop's best step, and the number of this step.

    Args:
        reports: Metrics of each report in the fold, by step; at least one.
        order: See `best_step`.
    """
    step = best_step(reports, order)
    return {**reports[step], BEST_FOLD_STEP: float(step)}


def mean_of(results: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric that all folds have."""
    names = [name for name in results[0] if all(name in result for result in results)]
    return {name: math.fsum(result[name] for result in results) / len(results) for name in names}


def _report(
    session: TrialSession,
    scratch: Path,
    results: list[dict[str, float]],
    *,
    finals: list[dict[str, float]],
) -> None:
    """Report the mean over the folds so far.

    Rank 0 stores the results of the folds in the checkpoint. Each rank stores the files that its
    loop has reported.
    """
    if session.rank == 0:
        (scratch / RESULTS_FILE).write_text(json.dumps({"results": results, "final": finals}))
    checkpoint = None
    if any(scratch.iterdir()):
        checkpoint = ray.train.Checkpoint.from_directory(str(scratch))
    session.report(mean_of(results), checkpoint, len(results))


def _restore(
    session: TrialSession, scratch: Path
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return the results and the final metrics of the folds in the trial's checkpoint.

    Return empty lists if there is no checkpoint. Rank 0 copies the models to the scratch folder,
    because the next checkpoint has them, too.
    """
    checkpoint = session.checkpoint()
    if checkpoint is None:
        return [], []
    with checkpoint.as_directory() as folder:
        state = json.loads(Path(folder, RESULTS_FILE).read_text())
        if session.rank == 0:
            shutil.copytree(folder, scratch, dirs_exist_ok=True)
    return state["results"], state["final"]
