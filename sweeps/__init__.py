"""Tune preprocessors, model parameters, data options and resources together.

Resources are workers, CPUs and GPUs. One YAML file goes in, and one bundle comes out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sweeps.core import trial
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
    from sweeps.bundle.model import load_bundle
    from sweeps.controller.api import resume, run
    from sweeps.controller.sweep import Sweep, open
    from sweeps.core.result import SweepResult
    from sweeps.core.script_report import report
    from sweeps.space import Space, load
    from sweeps.space.domain_functions import (
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

__version__ = "0.1.0"

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
    "resume",
    "run",
    "trial",
    "uniform",
]

# `import sweeps.trial` and `from sweeps.trial import current` are public; the module itself is in
# `core`.
sys.modules["sweeps.trial"] = trial

# The functions that make domains, such as `sweeps.loguniform`.
_DOMAINS = (
    "grid",
    "choice",
    "uniform",
    "quniform",
    "loguniform",
    "qloguniform",
    "randint",
    "qrandint",
    "lograndint",
    "qlograndint",
    "randn",
    "qrandn",
)
# Ray, MLflow and the frameworks are imported only when they are used, so `sweeps --help` never
# waits for them.
_LAZY = {
    "Space": "sweeps.space",
    "Sweep": "sweeps.controller.sweep",
    "SweepResult": "sweeps.core.result",
    "load": "sweeps.space",
    "load_bundle": "sweeps.bundle.model",
    "open": "sweeps.controller.sweep",
    "report": "sweeps.core.script_report",
    "resume": "sweeps.controller.api",
    "run": "sweeps.controller.api",
    **dict.fromkeys(_DOMAINS, "sweeps.space.domain_functions"),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'sweeps' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
