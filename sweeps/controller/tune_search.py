"""Run the trials of a sweep with Ray Tune.

The controller decides which trials start, continue and stop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sweeps.core.command_hints import resume_command
from sweeps.core.errors import SweepsError

if TYPE_CHECKING:
    from ray import tune

    from sweeps.controller.controller import SweepController

log = logging.getLogger(__name__)

LOW_ON_MEMORY = "running low on memory"  # Ray's own wording


def run(controller: SweepController, concurrency: int) -> None:
    """Run trials until all trials have ended, and the controller has no more trials to start.

    Args:
        controller: The controller of the sweep.
        concurrency: Largest number of trials that Ray Tune starts in parallel. If the cluster is
            too small for all of them, some wait for workers.

    Raises:
        SweepsError: Ray ended processes of the sweep, because a node ran low on memory.
    """
    from sweeps.execution import tune_trials

    controller.finish_leftover_trials()
    if controller.reason is not None or not controller.search.to_run:
        return
    tuner = _build_tuner(controller, concurrency)
    try:
        with tune_trials.run_in(controller.pool):
            tuner.fit()
    except Exception as e:
        if controller.error is not None:  # Ray Tune has converted this error to text.
            raise controller.error  # noqa: B904 - The error has a cause of its own.
        # A cluster's memory monitor kills small processes first, such as those of Ray Tune.
        if LOW_ON_MEMORY in str(e):
            log.exception("a node ran low on memory")
            text = (
                "Ray ended processes of the sweep, because a node ran low on memory. The study is "
                "safe. To continue the sweep with fewer"
            )
            hint = f"{resume_command(controller.folder)} --set limits.max_concurrent_trials=N"
            raise SweepsError(f"{text} trials at once: {hint}") from None
        raise
    controller.publish_stage(None)


def _build_tuner(controller: SweepController, concurrency: int) -> tune.Tuner:
    """Build the tuner that asks a controller for its trials; see `run`."""
    from ray import tune

    from sweeps.execution import tune_trials
    from sweeps.execution.tune_bridge import StudySearcher, VerdictScheduler

    # A paused trial continues as another trial of Ray Tune.
    samples = -1 if controller.scheduler.pauses else controller.search.to_run
    return tune.Tuner(
        tune_trials.Trainable,
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(controller),
            scheduler=VerdictScheduler(controller),
            num_samples=samples,
            max_concurrent_trials=concurrency,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(controller.folder),
            verbose=0,
            # In a notebook, Ray Tune's default would clear the output of the cell.
            progress_reporter=tune.CLIReporter(),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
