"""Run a script unchanged, as W&B Sweeps, Determined and Katib do.

    trainer: {command: [python, train.py, --lr, "{params.lr}"]}

Each rank starts the command as a process with the environment variables that torchrun sets.
docs/how-to/command.md describes how a script reports metrics and saves checkpoints. Only the
reports of rank 0 count. The other ranks follow rank 0, because every rank must report equally
often.
"""

from ray.train.backend import Backend, BackendConfig

from . import Params
from ._script_run import ScriptRun


class SharedGpus(BackendConfig):
    """Backend that connects nothing.

    It lets each worker see the GPUs of all workers on its node, so that `LOCAL_RANK` selects a GPU.
    """

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of the backend."""
        return _SharedGpus


class _SharedGpus(Backend):
    share_cuda_visible_devices = True


def train_func(config: Params) -> None:
    """Run the command on this rank, and report what the script of rank 0 reports.

    Args:
        config: The trial's parameters, which replace the placeholders of the command.

    Raises:
        ScriptFailed: The script ended with an exit code other than 0, or the script of rank 0 has
            reported nothing.
    """
    run = ScriptRun(config)
    with run.started() as script:
        if run.rank == 0:
            run.lead(script)
        else:
            run.follow(script)
