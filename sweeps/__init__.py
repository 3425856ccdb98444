"""Tune preprocessors, model parameters, data options and resources together.

Resources are workers, CPUs and GPUs. One YAML file goes in, and one bundle comes out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sweeps.core import installed_package
from sweeps.core import loop_context as trial
from sweeps.core.errors import (
    BundleError,
    InputError,
    Interrupted,
    Problem,
    SweepFailed,
    SweepLocked,
    SweepsError,
)

if TYPE_CHECKING:
    from sweeps.bundle.bundle_model import load_bundle
    from sweeps.core.loop_context import report_predictions
    from sweeps.core.plugins.script_report import report
    from sweeps.core.result import SweepResult
    from sweeps.runs.api import resume, run
    from sweeps.runs.sweep import Sweep, open
    from sweeps.space import Space, load
    from sweeps.space.python.domain_functions import (
        choice,
        grid,
        lograndint,
        loguniform,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        uniform,
    )

__version__ = installed_package.VERSION

__all__ = [
    "BundleError",
    "InputError",
    "Interrupted",
    "Problem",
    "Space",
    "Sweep",
    "SweepFailed",
    "SweepLocked",
    "SweepResult",
    "SweepsError",
    "choice",
    "grid",
    "load",
    "load_bundle",
    "lograndint",
    "loguniform",
    "open",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "report",
    "report_predictions",
    "resume",
    "run",
    "trial",
    "uniform",
]

# `import sweeps.trial` and `from sweeps.trial import current` are public; the module itself is in
# `core`.
sys.modules["sweeps.trial"] = trial

# The modules of the public names that are imported only when they are used. They import Ray, MLflow
# and the frameworks, and `sweeps --help` must not wait for that.
_LAZY = {
    "Space": "sweeps.space",
    "Sweep": "sweeps.runs.sweep",
    "SweepResult": "sweeps.core.result",
    "load": "sweeps.space",
    "load_bundle": "sweeps.bundle.bundle_model",
    "open": "sweeps.runs.sweep",
    "report": "sweeps.core.plugins.script_report",
    "report_predictions": "sweeps.core.loop_context",
    "resume": "sweeps.runs.api",
    "run": "sweeps.runs.api",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        # The other public names make domains, such as `sweeps.loguniform`.
        module = _LAZY.get(name, "sweeps.space.python.domain_functions")
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'sweeps' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
