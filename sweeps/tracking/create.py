"""Create the trackers that a space file lists, before the sweep starts."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from sweeps.core import registry
from sweeps.core.errors import InputError, Problem
from sweeps.core.references import RefError
from sweeps.space import Space
from sweeps.space.saved_space import roots_of
from sweeps.space.tracker_section import KIND, TrackerSpec
from sweeps.tracking.tracker import Tracker

NamedTracker = tuple[str, Tracker]


def create_trackers(space: Space) -> tuple[NamedTracker, ...]:
    """Create the trackers that a space file lists, except MLflow, and return them with their names.

    Users' classes are imported.

    Raises:
        InputError: A class cannot be imported, does not accept its options, or has no `handle` or
            `close`. The error lists all problems.
    """
    trackers: list[NamedTracker] = []
    problems: list[Problem] = []
    for i, spec in enumerate(space.trackers):
        if spec.name == "mlflow":
            continue
        try:
            trackers.append((spec.name, _create(spec, space)))
        except _CannotCreate as e:
            problems.append(Problem(space.place(f"trackers.{i}"), f"trackers.{i}: {e}"))
    if problems:
        raise InputError(problems)
    return tuple(trackers)


class _CannotCreate(Exception):
    """Raised if a tracker cannot be created. The message gives the reason in one line."""


def _create(spec: TrackerSpec, space: Space) -> Tracker:
    ours = registry.is_built_in(KIND, spec.name)
    for root in reversed(roots_of(space)):
        if not ours and str(root) not in sys.path:
            sys.path.insert(0, str(root))
    try:
        found: Any = registry.resolve(KIND, spec.name)
    except RefError as e:
        raise _CannotCreate(str(e)) from e
    if inspect.isclass(found):
        _check_port(spec.name, found)
    elif not callable(found):
        raise _CannotCreate(
            f"`{spec.name}` has the type {type(found).__name__}, but must be a class"
        )
    try:
        tracker: Tracker = found(found.Options(**spec.options)) if ours else found(**spec.options)
    except Exception as e:
        options = f"the options {', '.join(spec.options)}" if spec.options else "no options"
        raise _CannotCreate(f"`{spec.name}` cannot be created with {options}: {_line(e)}") from e
    _check_port(spec.name, tracker)
    return tracker


def _check_port(name: str, found: Any) -> None:
    """Raise _CannotCreate if a class or an object lacks `handle` or `close`."""
    missing = [
        method for method in ("handle", "close") if not callable(getattr(found, method, None))
    ]
    if missing:
        raise _CannotCreate(
            f"`{name}` has no method {' and no method '.join(f'`{m}`' for m in missing)}; a "
            "tracker must have the "
            "methods `handle` and `close`"
        )


def _line(e: Exception) -> str:
    return f"{type(e).__name__}: {' '.join(str(e).split())}".removesuffix(": ")
