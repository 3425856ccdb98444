"""Prepare the export of the winner while trials run."""

from __future__ import annotations

import contextlib
import importlib
import threading

from sweeps.space import Space


def prepare_export(space: Space, resources: contextlib.ExitStack) -> None:
    """In a thread, start the process that checks the bundle, and load what the export needs.

    Both take seconds of CPU time, and the export at the end does not wait for them. Before the
    first trial runs, they would delay it. If no bundle is made, start nothing.

    Args:
        space: The search space.
        resources: Ends the process when it is closed.
    """
    from sweeps.bundle import check_process

    trainer = space.trainer
    if trainer.load is None or len(space.objectives) > 1:
        return
    packages = [b for b in ("lightgbm", "torch", "xgboost") if b == trainer.backend]
    resources.enter_context(check_process.started_early(packages))
    names = ("sweeps.bundle.export", "mlflow.pyfunc", *packages, "optuna.visualization")
    threading.Thread(target=_import_all, args=names, name="import", daemon=True).start()


def _import_all(*names: str) -> None:
    """Import modules, and read the sources of those that a bundle contains.

    Whoever needs a module later reports the error of its import.
    """
    with contextlib.suppress(Exception):
        from sweeps.bundle.model_code import find_shipped_modules

        find_shipped_modules()
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
