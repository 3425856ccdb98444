"""sweeps: tune preprocessors, scaling, data and model parameters together; one YAML file in, one artefact out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sweeps.errors import BundleError, InputError, Interrupted, Problem, SweepFailed, SweepLocked, SweepsError

if TYPE_CHECKING:
    from sweeps.bundle import load_bundle
    from sweeps.orchestrator import resume, run
    from sweeps.result import SweepResult
    from sweeps.space import Space, load  # type: ignore[no-redef]

__version__ = "0.1.0"

__all__ = [
    "BundleError",
    "InputError",
    "Interrupted",
    "Problem",
    "Space",
    "SweepFailed",
    "SweepLocked",
    "SweepResult",
    "SweepsError",
    "load",
    "load_bundle",
    "resume",
    "run",
]

# Ray, MLflow and the frameworks are imported when they are used: `sweeps --help` never waits for them.
_LAZY = {
    "Space": "sweeps.space",
    "SweepResult": "sweeps.result",
    "load": "sweeps.space",
    "load_bundle": "sweeps.bundle",
    "resume": "sweeps.orchestrator",
    "run": "sweeps.orchestrator",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'sweeps' has no attribute '{name}'")
