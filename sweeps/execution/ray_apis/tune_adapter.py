"""Run the trials of a sweep with Ray Tune, in the workers of the pool.

This file alone knows how Ray Tune behaves:

- Tune asks for trials, results and decisions. A searcher and a scheduler pass its calls to a
  `TrialSource`, which makes the decisions.
- Tune does not call its scheduler while it waits for a trial to start. The searcher polls instead.
- Tune keeps only the text of an error of its searcher and its scheduler, and sometimes calls them
  again afterwards. `SourceCalls` keeps the first error.
- Tune reserves resources and starts an actor for each trial. In a sweep, the pool's workers run the
  trials, so this actor would only pass messages on. It would cost a process of 100 MB, two seconds
  of imports, and an additional call for each message. Instead, Tune gets a `_PoolTrial` in place of
  the handle of this actor. It calls the pool directly.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from unittest.mock import patch

import ray
from ray import tune
from ray.air.execution.resources import AcquiredResources, ResourceManager, ResourceRequest
from ray.tune.execution import tune_controller
from ray.tune.execution.tune_controller import TuneController
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeps.core.errors import SweepsError
from sweeps.core.text.command_hints import resume_command
from sweeps.execution.messages import TrialUpdate

log = logging.getLogger(__name__)

LOW_ON_MEMORY = "running low on memory"  # Ray's own wording


class TrialSource(Protocol):
    """Interface of the object that decides which trials start and stop.

    It is in the driver's process, and Ray Tune's thread calls it.
    """

    def start_trial(self) -> str | None:
        """Start a trial and return its id; None if no trial can start now, but one may start later.

        Raises:
            StopIteration: The sweep starts no more trials.
        """

    def on_update(self, update: TrialUpdate) -> bool:
        """Record what happened to a trial. Return False if Tune must stop the trial."""

    def on_trial_lost(self, trial: str) -> None:
        """Handle a trial that Tune has given up, because the pool did not answer."""

    def poll(self) -> None:
        """Do work that is due from time to time."""


def run(source: TrialSource, pool: Any, folder: Path, concurrency: int, samples: int) -> None:
    """Run trials until all trials have ended, and the source has no more trials to start.

    Args:
        source: Decides which trials start and stop.
        pool: Handle of the worker pool.
        folder: The sweep's folder.
        concurrency: Largest number of trials that Ray Tune starts in parallel. If the cluster is
            too small for all of them, some wait for workers.
        samples: Largest number of trials of Ray Tune; -1 for no limit. A trial that is paused and
            continues is another trial of Ray Tune.

    Raises:
        SweepsError: Ray ended processes of the sweep, because a node ran low on memory.
        Exception: The first error that a method of the source raised.
    """
    calls = SourceCalls(source)
    tuner = tune.Tuner(
        Trainable,
        tune_config=tune.TuneConfig(
            search_alg=TrialSearcher(calls),
            scheduler=_Scheduler(calls),
            num_samples=samples,
            max_concurrent_trials=concurrency,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(folder),
            verbose=0,
            # In a notebook, Ray Tune's default would clear the output of the cell.
            progress_reporter=tune.CLIReporter(),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    try:
        with run_trials_in(pool):
            tuner.fit()
    except Exception as e:
        if calls.error is not None:  # Ray Tune has converted this error to text.
            raise calls.error  # noqa: B904 - The error has a cause of its own.
        # A cluster's memory monitor kills small processes first, such as those of Ray Tune.
        if LOW_ON_MEMORY in str(e):
            log.exception("a node ran low on memory")
            command = f"{resume_command(folder)} --set limits.max_concurrent_trials=N"
            raise SweepsError(
                "Ray ended processes of the sweep, because a node ran low on memory. The study is "
                f"safe. To continue the sweep with fewer trials at once: {command}"
            ) from None
        raise


class SourceCalls:
    """Context manager around calls of a source. It keeps the first error.

    Attributes:
        error: The first error; None if there is none.
    """

    def __init__(self, source: TrialSource):
        self.error: Exception | None = None
        self._source = source

    def __enter__(self) -> TrialSource:
        """Return the source. After an error, raise this error again instead."""
        if self.error is not None:
            raise self.error
        return self._source

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep the first error."""
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            self.error = self.error or error

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickle the object as None.

        Ray Tune pickles its searcher so that it can restore a run; sweeps never restores one.
        """
        return type(None), ()


class TrialSearcher(Searcher):
    """Searcher that starts the source's next trial when Tune asks for a configuration."""

    def __init__(self, calls: SourceCalls):
        super().__init__()
        self._calls = calls
        self._started: dict[str, str] = {}  # the id in the sweep, by Tune's id of the trial

    def suggest(self, trial_id: str) -> Any:
        """Start the next trial of the sweep as Tune's trial `trial_id`.

        Returns:
            The configuration of Tune's trial: a dict with the id that the trial has in the sweep.
            None if no trial can start now, and `Searcher.FINISHED` if the sweep starts no more
            trials.
        """
        try:
            with self._calls as source:
                started = source.start_trial()
                # If no trial runs, Tune only waits, and the scheduler does not poll.
                if started is None and not self._started:
                    source.poll()
                    started = source.start_trial()
        except StopIteration:
            return Searcher.FINISHED
        if started is None:
            return None
        self._started[trial_id] = started
        return {"trial": started}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """If Tune gives up a trial after an error, tell the source.

        `_Scheduler` handles trials that end without an error.
        """
        trial = self._started.pop(trial_id, None)
        if error and trial is not None:
            with self._calls as source:
                source.on_trial_lost(trial)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the study already stores the state of the search."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the state of the search is in the study."""


class _Scheduler(FIFOScheduler):
    """Scheduler that passes updates of trials to the source, and returns its decision to Tune."""

    def __init__(self, calls: SourceCalls):
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = calls

    def choose_trial_to_run(self, tune_controller: TuneController, **more: Any) -> None:
        """Let the source do its periodic work, and let Tune start pending trials in order.

        Tune calls this once in each round.
        """
        # A Tune callback is not used, because with any callback Tune imports all its loggers. The
        # import of MLflow's logger takes seconds.
        with self._calls as source:
            source.poll()
        # With None, Tune starts pending trials in order. A search for the first pending trial of
        # 10,000 trials would take a millisecond.

    def on_trial_result(
        self, tune_controller: TuneController, trial: tune.experiment.Trial, result: dict[str, Any]
    ) -> str:
        """Pass what happened to a trial to the source.

        Return Tune's constant for its decision.
        """
        with self._calls as source:
            continues = source.on_update(result["update"])
        return TrialScheduler.CONTINUE if continues else TrialScheduler.STOP


class Trainable(tune.Trainable):
    """Empty Trainable of all trials.

    Tune requires such a class, but no instance is ever created.
    """


def run_trials_in(pool: Any) -> contextlib.AbstractContextManager[object]:
    """Return a context manager that lets Ray Tune run all trials in a pool, given its handle."""
    manager = functools.partial(_PoolResources, pool)
    return patch.object(tune_controller, "PlacementGroupResourceManager", manager)


class _PoolResources(ResourceManager):
    """Resource manager of Ray Tune that grants every request at once.

    The pool allocates the resources of the trials.
    """

    def __init__(self, pool: Any):
        self._pool = pool

    def request_resources(self, resource_request: ResourceRequest) -> None:
        pass

    def cancel_resource_request(self, resource_request: ResourceRequest) -> None:
        pass

    def has_resources_ready(self, resource_request: ResourceRequest) -> bool:
        return True

    def acquire_resources(self, resource_request: ResourceRequest) -> AcquiredResources:
        return _PoolAcquired(resource_request, self._pool)

    def free_resources(self, acquired_resource: AcquiredResources) -> None:
        pass

    def clear(self) -> None:
        pass


@dataclass
class _PoolAcquired(AcquiredResources):
    """Resources of one trial, as Tune sees them.

    Before Tune starts a trial's actor, it passes the actor's class to this object. This object
    returns a stand-in for the class. When Tune then calls `remote` of the stand-in, the call
    returns a `_PoolTrial` and starts no actor.
    """

    pool: Any

    def annotate_remote_entities(self, entities: Sequence[Any]) -> list[Any]:
        return [_RemoteMethod(lambda config, **_: _PoolTrial(self.pool, config["trial"]))]


class _RemoteMethod:
    """Stand-in for an actor's class, or for a method of an actor's handle.

    Tune calls the method `remote` of both.
    """

    def __init__(self, call: Callable[..., object]):
        self.remote = call


class _PoolTrial:
    """Stand-in for the handle of a trial's actor. It has the methods that Tune calls.

    Args:
        pool: Handle of the pool.
        trial: Id of the trial.
    """

    def __init__(self, pool: Any, trial: str):
        # Ray repeats a call that a restart cuts off.
        self.train = _RemoteMethod(lambda: pool.step.options(max_task_retries=-1).remote(trial))
        self.stop = _RemoteMethod(lambda: ray.put(None))
        self.get_auto_filled_metrics = _RemoteMethod(lambda **_: {})
        self.__ray_ready__ = self.stop
