"""Create the trackers that a space file lists, before the sweep starts."""

import sys

from sweeps.core.errors import InputError, Problem
from sweeps.core.plugins import plugin_registry
from sweeps.core.plugins.references import RefError
from sweeps.space import Space
from sweeps.space.python.saved_space import roots_of
from sweeps.space.sections.tracker_section import KIND, TrackerSpec

from .tracker import Tracker

NamedTracker = tuple[str, Tracker]
PORT = ("handle", "close")  # methods of a tracker


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
    """Create one tracker.

    Raises:
        _CannotCreate: See `create_trackers`.
    """
    if not plugin_registry.is_built_in(KIND, spec.name):
        sys.path[:0] = [str(root) for root in roots_of(space) if str(root) not in sys.path]
    try:
        factory = plugin_registry.resolve(KIND, spec.name)
    except RefError as e:
        raise _CannotCreate(str(e)) from e
    if not callable(factory):
        raise _CannotCreate(
            f"`{spec.name}` has the type {type(factory).__name__}, but must be a class"
        )
    try:
        tracker: Tracker = factory(**spec.options)
    except Exception as e:
        options = f"the options {', '.join(spec.options)}" if spec.options else "no options"
        line = f"{type(e).__name__}: {' '.join(str(e).split())}".removesuffix(": ")
        raise _CannotCreate(f"`{spec.name}` cannot be created with {options}: {line}") from e
    missing = [name for name in PORT if not callable(getattr(tracker, name, None))]
    if missing:
        names = " and no method ".join(f"`{name}`" for name in missing)
        raise _CannotCreate(
            f"`{spec.name}` has no method {names}; a tracker must have the methods `handle` and "
            "`close`"
        )
    return tracker
