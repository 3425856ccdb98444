"""Registry of plug-ins: samplers, schedulers and trackers.

A built-in plug-in has a name, such as `tpe`, and a reference `module:attr`.

In place of a built-in name, a user may write the `module:attr` of a class. To add a built-in
plug-in, write a module with its class, and add a row to `BUILT_IN`.

The module of a plug-in is imported on first use. Code can therefore use a plug-in from a folder
that comes later in the fixed order of imports, which is described in
`docs/internals/architecture.md`.
"""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sweeps.core.text.suggestions import did_you_mean

from . import references

# Reference of each built-in plug-in, by kind and name. Messages and reference pages list the
# plug-ins in this order.
BUILT_IN: dict[str, dict[str, str]] = {
    "sampler": {
        "tpe": "sweeps.search.samplers.tpe:Tpe",
        "random": "sweeps.search.samplers.random:Random",
        "grid": "sweeps.search.samplers.grid:Grid",
        "gp": "sweeps.search.samplers.gp:Gp",
        "qmc": "sweeps.search.samplers.qmc:Qmc",
        "cmaes": "sweeps.search.samplers.cmaes:Cmaes",
        "nsga2": "sweeps.search.samplers.nsga2:Nsga2",
    },
    "scheduler": {
        "none": "sweeps.search.schedulers.none:NoScheduler",
        "asha": "sweeps.search.schedulers.asha:Asha",
        "hyperband": "sweeps.search.schedulers.hyperband:Hyperband",
        "median": "sweeps.search.schedulers.median:Median",
        "pbt": "sweeps.search.schedulers.pbt:Pbt",
    },
    "tracker": {
        "mlflow": "sweeps.tracking.mlflow.mlflow_tracker:MlflowTracker",
        "jsonl": "sweeps.tracking.jsonl:JsonLinesTracker",
        "tensorboard": "sweeps.tracking.tensorboard:TensorBoardTracker",
    },
}


def names(kind: str) -> tuple[str, ...]:
    """Return the names of the built-in plug-ins of a kind: `sampler`, `scheduler` or `tracker`."""
    return tuple(BUILT_IN[kind])


def is_built_in(kind: str, name: str) -> bool:
    """Return whether a built-in plug-in of this kind has this name.

    Every other name must be a reference `module:attr`.
    """
    return name in BUILT_IN[kind]


@functools.cache
def built_in(kind: str, name: str) -> Any:
    """Import a built-in plug-in and return it.

    The import is cheap, because plug-ins import Ray and Optuna only inside functions.

    Raises:
        KeyError: There is no built-in plug-in of this kind and name.
    """
    return references.resolve(BUILT_IN[kind][name])


def reference(kind: str, name: str) -> str:
    """Return the `module:attr` of a plug-in.

    Args:
        kind: The kind of plug-in, such as `tracker`.
        name: The name of a built-in plug-in, or a `module:attr` of the user's own, which is
            returned unchanged.

    Raises:
        RefError: The name is neither the name of a built-in plug-in nor of the form `module:attr`.
    """
    if ":" in name:
        references.parse(name)
        return name
    if not is_built_in(kind, name):
        raise references.RefError(
            f"`{name}` is neither a built-in {kind} nor a reference `module:attr`; "
            f"{did_you_mean(name, BUILT_IN[kind])}"
        )
    return BUILT_IN[kind][name]


def resolve(kind: str, name: str) -> Any:
    """Import a plug-in and return it. The import runs the code of the plug-in's module.

    Args:
        kind: The kind of plug-in, such as `tracker`.
        name: The name of a built-in plug-in, or a `module:attr` of the user's own.

    Raises:
        RefError: The name is neither the name of a built-in plug-in nor of the form `module:attr`,
            or the module or the attribute does not exist. The message says which.
    """
    return references.resolve(reference(kind, name))


def problem(kind: str, name: str, roots: Iterable[Path] = ()) -> str | None:
    """Check the name of a plug-in without running the plug-in's code.

    Return a message that says what is wrong; None if nothing was found.

    Args:
        kind: The kind of plug-in, such as `tracker`.
        name: The name of a built-in plug-in, or a `module:attr` of the user's own.
        roots: Folders to search for the user's modules before `sys.path`.
    """
    try:
        return references.problem(reference(kind, name), roots)
    except references.RefError as e:
        return str(e)
