"""Connect the workers of a gang with Ray Train's backends, and clean up after the backends.

The clean-up removes what a backend has set in a process.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle
from ray.train._internal.base_worker_group import BaseWorkerGroup
from ray.train.backend import BackendConfig

from sweeps.core.plugins import references
from sweeps.execution.isolation import torch_state
from sweeps.execution.messages import Ranks

T = TypeVar("T")

# For a gang of one, these backends are not used. For torch, `torch_state` creates a cheaper process
# group; XGBoost and JAX need no group.
UNUSED_ALONE = ("none", "torch", "xgboost", "jax")

# References to the configuration classes of Ray Train's backends.
CONFIGS = {
    "torch": "ray.train.torch:TorchConfig",
    "xgboost": "ray.train.xgboost:XGBoostConfig",
    "lightgbm": "ray.train.lightgbm.config:LightGBMConfig",
    "tensorflow": "ray.train.tensorflow:TensorflowConfig",
    "jax": "ray.train.v2.jax:JaxConfig",
    "none": "ray.train.backend:BackendConfig",
}


def config_of(backend: str, resources: Mapping[str, float] = MappingProxyType({})) -> BackendConfig:
    """Return Ray Train's configuration object for a backend.

    Args:
        backend: "torch", "xgboost", "lightgbm", "tensorflow", "jax", "none", or a reference
            `module:attr` to a `BackendConfig` of the user.
        resources: Name and amount of each resource of one worker. The configurations of torch and
            JAX depend on its GPUs.
    """
    config: Any = references.resolve(CONFIGS.get(backend, backend))  # a class or an instance
    gpus = resources.get("GPU", 0)
    if backend == "torch":
        # NCCL refuses two ranks on one GPU. Workers that hold a fraction of a GPU may share one, so
        # they use gloo, which allows this.
        config = config(backend="gloo" if 0 < gpus < 1 else None)
    elif backend == "jax":
        config = config(use_tpu=resources.get("TPU", 0) > 0, use_gpu=gpus > 0)
    result: BackendConfig = config() if isinstance(config, type) else config
    return result


def find_backend_problem(backend: str) -> str | None:
    """Import a backend that has the form `module:attr`, and check it.

    Returns:
        A message of one line about a problem. None if the backend is valid, or does not have this
        form.
    """
    if ":" not in backend:
        return None
    try:
        config = references.resolve(backend)
    except references.RefError as e:
        return str(e)
    config_class = config if isinstance(config, type) else type(config)
    if not issubclass(config_class, BackendConfig):
        return (
            f"`{backend}` must be a subclass or an instance of ray.train.backend.BackendConfig, "
            f"got {config!r}"
        )
    try:
        config_of(backend)
    except Exception as e:
        return f"`{backend}` cannot be created without arguments: {type(e).__name__}: {e}"
    return None


class WorkerGroup(BaseWorkerGroup):
    """Worker group through which a backend of Ray Train calls functions in the workers of a gang.

    This object exists on rank 0.

    Args:
        workers: Handles of the workers in the order of their ranks.
        resources: Name and amount of each resource of one worker.
    """

    def __init__(self, workers: tuple[ActorHandle[Any], ...], resources: dict[str, float]):
        self._workers = workers
        self._resources = resources

    def execute_single_async(
        self, worker_index: int, func: Callable[..., T], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function in the process of one worker.

        Return a reference to the result of the function.
        """
        return self._workers[worker_index].execute.remote(func, *args, **kwargs)

    def execute_async(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function in the process of each worker.

        Return references to the results, ordered by rank.
        """
        return [self.execute_single_async(rank, func, *args, **kwargs) for rank in range(len(self))]

    def execute(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """Call a function in the process of each worker. Return the results, ordered by rank."""
        return list(ray.get(self.execute_async(func, *args, **kwargs)))

    def execute_single(
        self, worker_index: int, func: Callable[..., T], *args: Any, **kwargs: Any
    ) -> T:
        """Call a function in the process of one worker. Return the result of the function."""
        result: T = ray.get(self.execute_single_async(worker_index, func, *args, **kwargs))
        return result

    def call(self, method: str, *arguments: Sequence[object]) -> None:
        """Call a method of `WorkerRuntime` in the process of each worker, and wait for all calls.

        Each argument has one value for each worker.
        """
        ray.get(
            [
                worker.call.remote(method, *values)
                for worker, *values in zip(self._workers, *arguments, strict=True)
            ]
        )

    def get_resources_per_worker(self) -> dict[str, float]:
        """Return the resources of one worker.

        Whole amounts are integers, because Ray's backend for JAX passes the number of GPUs to
        `range`.
        """
        return {
            name: int(amount) if float(amount).is_integer() else amount
            for name, amount in self._resources.items()
        }

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self._workers)


class OwnProcess(WorkerGroup):
    """Worker group of a gang of one worker. Functions are called directly in this process.

    A call to the worker's actor would never start, because the backend blocks the worker's main
    thread while it waits for the call.

    Args:
        resources: Name and amount of each resource of the worker.
    """

    def __init__(self, resources: dict[str, float]):
        super().__init__((), resources)

    def __len__(self) -> int:
        """Return 1."""
        return 1

    def execute_single_async(
        self, worker_index: int, func: Callable[..., T], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function in this thread. Return a reference to the result of the function."""
        return ray.put(func(*args, **kwargs))


class Membership:
    """Membership of this process in a gang. It ends when `leave` is called.

    Args:
        ranks: Ranks of this process, and the size of the gang.
        visible_gpus: New value of `CUDA_VISIBLE_DEVICES`. None to keep the current value.
        backend: Backend of the gang.

    Attributes:
        groups: Process groups of torch that belong to the gang; empty before `enter`.
    """

    def __init__(self, ranks: Ranks, visible_gpus: str | None, backend: str):
        self.ranks = ranks
        self.backend = backend
        self.groups: frozenset[Any] = frozenset()
        self._environment = dict(os.environ)
        self._context: contextlib.AbstractContextManager[object] | None = None
        if visible_gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_gpus
        self._gpus = os.environ.get("CUDA_VISIBLE_DEVICES")

    def enter(self, config: BackendConfig) -> None:
        """Enter the backend's context for training functions, and record its process groups.

        These are the groups that the backend has made.

        Args:
            config: Configuration object of the backend, from `config_of`.
        """
        # Not in a `with` block, because `exit_context` exits the context in a later call.
        context = config.train_func_context()
        context.__enter__()
        self._context = context
        self.groups = torch_state.groups()

    def show_own_gpus(self) -> None:
        """Restore the value that `CUDA_VISIBLE_DEVICES` had before the backend changed it.

        Call this before CUDA is initialized.
        """
        if self._gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self._gpus

    def lost_its_group(self) -> bool:
        """Return whether the user's training loop has destroyed a process group of the gang."""
        return not self.groups <= torch_state.groups()

    def exit_context(self) -> None:
        """Exit the context that `enter` has entered, if any.

        Errors are ignored, because another worker of the gang may have died.
        """
        context = self._context
        self._context = None
        if context is not None:
            with contextlib.suppress(Exception):
                context.__exit__(None, None, None)

    def leave(self) -> None:
        """End the membership.

        Exit the backend's context, destroy all process groups of torch, disconnect LightGBM, and
        restore the environment variables.
        """
        self.exit_context()
        torch_state.destroy_groups(frozenset())
        if (lightgbm := sys.modules.get("lightgbm.basic")) is not None:
            lightgbm._LIB.LGBM_NetworkFree()
        if (lightgbm_config := sys.modules.get("ray.train.lightgbm.config")) is not None:
            lightgbm_config._lightgbm_network_params = None  # type: ignore[attr-defined]
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
