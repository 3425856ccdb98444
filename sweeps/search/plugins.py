"""Build the scheduler of a space, and check plug-ins of the user's before a sweep starts."""

from __future__ import annotations

from sweeps.core import references, registry
from sweeps.core.errors import InputError, Problem
from sweeps.search.schedulers.base import Scheduler
from sweeps.search.schedulers.none import NoScheduler
from sweeps.space.section_models import SchedulerSpec


def scheduler_of(spec: SchedulerSpec) -> Scheduler:
    """Build the scheduler of a space. A scheduler of the user's is imported.

    Raises:
        InputError: The user's class cannot be imported, is no scheduler, or does not take the options.
    """
    if registry.is_built_in("scheduler", spec.name):
        scheduler: Scheduler = registry.built_in("scheduler", spec.name)(**spec.options)
        return scheduler
    try:
        found = registry.resolve("scheduler", spec.name)
    except references.RefError as e:
        raise InputError(Problem("scheduler.name", str(e))) from None
    return _own_scheduler(spec, found)


def planned_scheduler(spec: SchedulerSpec) -> Scheduler:
    """Return the scheduler as far as it is known without importing code of the user's."""
    return scheduler_of(spec) if registry.is_built_in("scheduler", spec.name) else NoScheduler(spec.max_t)


def _own_scheduler(spec: SchedulerSpec, found: object) -> Scheduler:
    if not (isinstance(found, type) and issubclass(found, Scheduler)):
        raise InputError(Problem("scheduler.name", f"`{spec.name}` must be a class that inherits from sweeps.search.schedulers.Scheduler"))
    scheduler = found(**spec.options)
    if not hasattr(scheduler, "max_t"):
        raise InputError(Problem("scheduler.name", f"`{spec.name}` must have a field `max_t`, the step at which a trial ends or None"))
    return scheduler
