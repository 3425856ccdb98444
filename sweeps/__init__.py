"""sweeps: tune preprocessors, scaling, data and model parameters together; one YAML file in, one artefact out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sweeps.errors import BundleError, InputError, Interrupted, Problem, SweepFailed, SweepLocked, SweepsError

if TYPE_CHECKING:
    from sweeps import trial
    from sweeps.bundle import load_bundle
    from sweeps.orchestrator import resume, run
    from sweeps.result import SweepResult
    from sweeps.space import Space, load  # type: ignore[no-redef]
    from sweeps.sweep import Sweep, open

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
    "load",
    "load_bundle",
    "open",
    "resume",
    "run",
    "trial",
]

# Ray, MLflow and the frameworks are imported when they are used: `sweeps --help` never waits for them.
_LAZY = {
    "Space": "sweeps.space",
    "Sweep": "sweeps.sweep",
    "SweepResult": "sweeps.result",
    "load": "sweeps.space",
    "load_bundle": "sweeps.bundle",
    "open": "sweeps.sweep",
    "resume": "sweeps.orchestrator",
    "run": "sweeps.orchestrator",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY or name == "trial":
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name) if name in _LAZY else importlib.import_module("sweeps.trial")
    raise AttributeError(f"module 'sweeps' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


def _warn_of_namesake() -> None:
    try:
        from sweeps.distribution import warn_of_namesake
    except ImportError:  # the part of sweeps that a bundle carries shares its folder with no other package
        return
    warn_of_namesake()


_warn_of_namesake()
