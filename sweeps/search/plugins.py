"""Build the scheduler and the sampler of a space, and check both before a sweep starts.

Both may be built-in or user-defined.
"""

import functools
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from sweeps.core.errors import InputError, Problem
from sweeps.core.installed_package import install_command
from sweeps.core.plugins import plugin_registry, references
from sweeps.space import Space
from sweeps.space.python.saved_space import roots_of
from sweeps.space.sections.key_types import ROWS
from sweeps.space.sections.search_models import SchedulerSpec, Search

from .samplers.sampler import Algorithm, ReseededSampler, SamplerContext, SuggestingSampler
from .schedulers.none import NoScheduler
from .schedulers.scheduler import Scheduler

T = TypeVar("T")


def scheduler_of(spec: SchedulerSpec) -> Scheduler:
    """Build the scheduler of a space. A user-defined scheduler is imported first.

    Args:
        spec: The `scheduler` section of the space.

    Raises:
        InputError: The user-defined class cannot be imported, is not a scheduler, or does not
            accept the options.
    """
    if plugin_registry.is_built_in("scheduler", spec.name):
        built_in: type[Scheduler] = plugin_registry.built_in("scheduler", spec.name)
        return built_in(**spec.options)
    scheduler_class = _import_plugin("scheduler.name", "scheduler", spec.name)
    if not (isinstance(scheduler_class, type) and issubclass(scheduler_class, Scheduler)):
        raise InputError(
            "scheduler.name",
            f"`{spec.name}` must be a class that inherits from sweeps.search.schedulers.Scheduler",
        )
    build = functools.partial(scheduler_class, **spec.options)
    scheduler = _build_plugin("scheduler", spec.name, build)
    if not hasattr(scheduler, "max_t"):
        raise InputError(
            "scheduler.name",
            f"`{spec.name}` must have a field `max_t`: the step at which a trial ends, or None",
        )
    return scheduler


def planned_scheduler(spec: SchedulerSpec) -> Scheduler:
    """Build the scheduler of a space without importing user code.

    `NoScheduler` replaces a user-defined scheduler.

    Args:
        spec: The `scheduler` section of the space.
    """
    if plugin_registry.is_built_in("scheduler", spec.name):
        return scheduler_of(spec)
    return NoScheduler(spec.max_t)


def build_sampler(search: Search, context: SamplerContext) -> SuggestingSampler | ReseededSampler:
    """Build the sampler of a space. A user-defined sampler is imported first.

    Args:
        search: The `search` section of the space.
        context: Facts about the sweep that the sampler needs.

    Raises:
        InputError: The algorithm needs a package that is not installed, or the user-defined class
            cannot be imported or built.
    """
    if plugin_registry.is_built_in("sampler", search.algorithm):
        algorithm: type[Algorithm] = plugin_registry.built_in("sampler", search.algorithm)
        package = algorithm.package
        if package is not None and importlib.util.find_spec(package) is None:
            raise InputError(
                "search.algorithm",
                f"{search.algorithm} needs the package `{package}`, which is not installed: "
                f"{install_command(package)}",
            )
        return algorithm(**(search.options or {})).build(context)
    from .samplers.foreign import build_foreign

    factory = _import_plugin("search.algorithm", "sampler", search.algorithm)
    build = functools.partial(
        build_foreign, search.algorithm, factory, search.options or {}, context
    )
    return _build_plugin("search.options", search.algorithm, build)


def check_plugins(space: Space) -> list[Problem]:
    """Return everything that is wrong with the sampler and the scheduler of a space.

    User-defined classes are imported. For these imports, the folders of the user's modules are
    added to `sys.path`, and they stay there.

    Args:
        space: The search space.

    Returns:
        The problems; [] if there are none.
    """
    algorithm = space.search.algorithm
    built_in_sampler = plugin_registry.is_built_in("sampler", algorithm)
    if not (built_in_sampler and plugin_registry.is_built_in("scheduler", space.scheduler.name)):
        sys.path[:0] = [root for root in map(str, roots_of(space)) if root not in sys.path]
    problems: list[Problem] = []
    try:
        scheduler = scheduler_of(space.scheduler)
        problems += [Problem(f"scheduler.{key}", text) for key, text in scheduler.option_problems()]
        problems += row_problems(space.scheduler, scheduler)
        if scheduler.perturbs and not space.checkpoints.all_stay:
            text = (
                f"cannot be limited under {space.scheduler.name}, because its trials continue "
                "from the checkpoints of other trials"
            )
            problems.append(Problem("checkpoints", text))
    except InputError as e:
        problems += e.problems
    # Built-in samplers that need no package can always be built, but this would load Optuna, which
    # takes long.
    if not built_in_sampler or plugin_registry.built_in("sampler", algorithm).package:
        try:
            build_sampler(space.search, SamplerContext(space))
        except InputError as e:
            problems += e.problems
    return problems


def row_problems(spec: SchedulerSpec, scheduler: Scheduler) -> list[Problem]:
    """Return everything that keeps a scheduler from counting rows.

    [] if nothing does, or if the scheduler counts reports.

    Args:
        spec: The `scheduler` section of the space.
        scheduler: The scheduler of this section.
    """
    place = "scheduler.resource"
    if spec.counts_rows != (scheduler.resource == ROWS):
        text = (
            f"`{spec.name}` and the file must agree; write `resource: {ROWS}` in the file, and "
            "make `resource` a field of the class"
        )
        return [Problem(place, text)]
    if not spec.counts_rows:
        return []
    if scheduler.max_t is None or scheduler.perturbs:
        return [
            Problem(
                place,
                f"{ROWS} needs a scheduler with a `max_t` that changes no parameters; choose asha "
                "or hyperband",
            )
        ]
    return []


def _import_plugin(place: str, kind: str, name: str) -> Any:
    """Import a user-defined class.

    If the import fails, raise an InputError with one problem at `place`, a position in the space
    file.
    """
    try:
        return plugin_registry.resolve(kind, name)
    except references.RefError as e:
        raise InputError(place, str(e)) from e


def _build_plugin(place: str, name: str, build: Callable[[], T]) -> T:
    """Call a function that builds a user-defined object with its options.

    If the call fails, raise an InputError with one problem at `place` (see `_import_plugin`).
    """
    try:
        return build()
    except Exception as e:
        raise InputError(
            place, f"`{name}` does not take these options: {type(e).__name__}: {e}"
        ) from e
