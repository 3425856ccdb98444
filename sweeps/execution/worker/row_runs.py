"""Run the training loop again on more and more train rows, for a scheduler that counts rows.

Such a scheduler has `scheduler.resource: data.rows`. The steps of such a trial are parts of the
train split: at step n, the loop trains on n / `max_t` of the rows. A run has the rows of all
earlier runs and more, and the valid split stays whole. The loop's own reports stay in this process.
After each run, the trial reports the metrics of the run's model, together with its checkpoint. The
scheduler then decides whether the loop runs on more rows. A loop that can continue from a model of
fewer rows finds its previous checkpoint in `Current.previous_run`. Other loops start from scratch.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import ray.train

from sweeps.core.loop_context import BEST_LOOP_STEP, CHECKPOINT_NOTE, TRAIN_ROWS, Current

from .loop_run import RankLoop, best_step, scratch_folder
from .trial_session import TrialSession


class RowRun(RankLoop):
    """One run of the loop on a part of the train rows, on one rank."""

    def result(self) -> dict[str, float]:
        """Return the metrics of the run's model.

        These are the metrics at the step whose model is in the latest checkpoint. Without a
        checkpoint, these are the metrics at the loop's best step.
        """
        step = self.model_step or best_step(self.metrics, self.job.order)
        # All ranks have the same number of rows, so a remainder is left out.
        rows = self._data.data.rows // self.ranks.world_size * self.ranks.world_size
        return {**self.metrics[step], BEST_LOOP_STEP: float(step), TRAIN_ROWS: float(rows)}

    def latest_checkpoint(self, step: int, on_all_ranks: bool) -> ray.train.Checkpoint | None:
        """Return the loop's latest checkpoint; None if there is none.

        Its note names the trial's step instead of the loop's step.

        Args:
            step: The trial's step.
            on_all_ranks: True if every rank has a checkpoint.
        """
        if self.model_step is None:
            return None
        note = {"best_step": step, "loop_step": self.model_step, "on_all_ranks": on_all_ranks}
        (self._latest / CHECKPOINT_NOTE).write_text(json.dumps(note))
        return ray.train.Checkpoint.from_directory(str(self._latest))


def run_on_rows(session: TrialSession, current: Current, train: Callable[[RankLoop], None]) -> None:
    """Train and report on each part of the train rows that is larger than the checkpoint's part.

    Args:
        session: The session of the trial, which gets one report for each part.
        current: Description of the trial. The loop gets a copy for each part.
        train: Function that runs the loop. The functions of `ray.train` then call the session of
            the run.

    Raises:
        LoopStopped: The trial ends at this step.
        ValueError: The loop reported nothing in a run.
    """
    assignment = session.assignment
    steps = session.assignment.row_steps
    done = assignment.checkpoint.step if assignment.checkpoint is not None else 0
    previous: Path | None = None  # this rank's files of the last checkpoint
    if done and (checkpoint := session.checkpoint()) is not None:
        folder = Path(checkpoint.path)
        previous = folder if _is_on_all_ranks(folder) else None
    with scratch_folder(session) as scratch:
        for step in (step for step in steps if step > done):
            data = session.cache if step == steps[-1] else session.cache.parts[step]
            run = RowRun(session, data, scratch / str(step))
            loop_current = run.run(
                current,
                train,
                f"on {step} of {steps[-1]} parts of the train rows",
                train_share=step / steps[-1],
                previous_run=previous,
            )
            current.final = loop_current.final
            current.predictions = loop_current.predictions
            latest = run.checkpoint_folder
            # If only some ranks began with their model of fewer rows, the ranks would train
            # different models.
            on_all_ranks = all(session.exchange(latest is not None))
            session.report(run.result(), run.latest_checkpoint(step, on_all_ranks), step)
            if previous is not None and previous.is_relative_to(scratch):
                shutil.rmtree(previous)
            previous = latest if on_all_ranks else None


def _is_on_all_ranks(checkpoint: Path) -> bool:
    """Return whether every rank had reported files of a trial's checkpoint."""
    note = checkpoint / CHECKPOINT_NOTE
    return note.is_file() and json.loads(note.read_text()).get("on_all_ranks", False) is True
