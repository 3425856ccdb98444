"""Parse the sections that configure the search.

These are `objective`, `constraints`, `search`, `scheduler`, `repeats`, `limits`, `checkpoints` and
`bundle`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sweeps.core import registry
from sweeps.core.best_step import COMPARISONS, Constraint
from sweeps.core.parameter_schema import rule_of
from sweeps.core.resources import COSTS
from sweeps.core.suggestions import did_you_mean
from sweeps.space.auto_algorithm import AUTO
from sweeps.space.nodes import Node, scalar
from sweeps.space.problems import SpaceFile, check, report_domains, wrong_name
from sweeps.space.section_models import (
    BundleKeys,
    Checkpoints,
    Limits,
    Objective,
    Repeats,
    SchedulerSpec,
    Search,
)
from sweeps.space.synonyms import suggest
from sweeps.space.trainer_section import portfolio_files
from sweeps.space.when_parser import COMPARISON

T = TypeVar("T")
SEARCH_SECTIONS = (
    "objective",
    "constraints",
    "search",
    "scheduler",
    "repeats",
    "limits",
    "checkpoints",
    "bundle",
)


class SearchSections:
    """Parser of the sections that configure the search.

    The constructor parses all of these sections.

    If a section has a problem, its attribute is None, or () in the case of `objectives`.

    Args:
        file: The space file.
        roots: Folders in which references to the user's modules are looked up.

    Attributes:
        objectives: Metrics to optimize, from the section `objective`.
        constraints: Bounds on metrics. A bound that has a problem is left out.
        search: The sampler, with its options.
        scheduler: The scheduler, with its options.
        repeats: Number of times that each configuration is trained.
        limits: Budget of the sweep.
        checkpoints: Rules for the checkpoints to keep.
        bundle: The model in the bundle of the winner.
    """

    def __init__(self, file: SpaceFile, roots: Iterable[Path] = ()):
        self.file, self.problems, self.roots = file, file.problems, tuple(roots)
        self.objectives = self._read_objectives()
        self.constraints = self._read_constraints()
        self.search = self._read_search()
        self.scheduler = self._read_scheduler()
        self.repeats = self._read_repeats()
        self.limits = self._check(Limits, "limits")
        self.checkpoints = self._check(Checkpoints, "checkpoints")
        self.bundle = self._check(BundleKeys, "bundle")
        self._check_checkpoints()
        self._check_objectives()
        if self.scheduler and perturbs(self.scheduler):
            self._check_population(self.scheduler)
        if (
            self.scheduler
            and self.scheduler.population
            and self.limits
            and not self.limits.max_trials
        ):
            self.limits = replace(self.limits, max_trials=self.scheduler.population)

    @property
    def parsed(self) -> dict[str, Any]:
        """The parsed sections as keyword arguments of `Space`.

        The keys are the names of this object's attributes.
        """
        names = ("objectives", *SEARCH_SECTIONS[1:])
        return {name: getattr(self, name) for name in names}

    def _check(self, model: type[T], section: str) -> T | None:
        """Validate a section, and return it as an instance of its dataclass.

        Return None if it has a problem.
        """
        return check(model, self.file.node(section), section, self.file.at(section), self.problems)

    def _read_objectives(self) -> tuple[Objective, ...]:
        """Parse `objective`. Return () after a problem."""
        node = self.file.node("objective")
        if not node.is_list:
            objective = self._check(Objective, "objective")
            return (objective,) if objective else ()
        if not node.value:
            self.problems.add(
                node.mark, "objective", "must be a mapping or a list of mappings, got an empty list"
            )
        objectives = [
            check(Objective, child, f"objective.{i}", child.mark, self.problems)
            for i, child in enumerate(node.value)
        ]
        first: dict[str, int] = {}
        for i, objective in enumerate(objectives):
            if objective is not None and first.setdefault(objective.metric, i) != i:
                self.file.wrong(
                    f"objective.{i}.metric",
                    f"`{objective.metric}` is already the metric of another objective",
                )
        return (
            tuple(objective for objective in objectives if objective is not None)
            if None not in objectives
            else ()
        )

    def _read_constraints(self) -> tuple[Constraint, ...]:
        """Parse `constraints`, a mapping of metrics to comparisons such as `<= 5`."""
        node = self.file.node("constraints")
        if node.value is None or report_domains(node, "constraints", self.problems):
            return ()
        if not node.is_map:
            text = (
                f'must be a mapping of metrics to comparisons, such as {{latency_ms: "<= 5"}}, '
                f"got {node.show()}"
            )
            self.problems.add(node.mark, "constraints", text)
            return ()
        constraints = []
        for metric, child in node.value.items():
            match = COMPARISON.match(child.value.strip()) if isinstance(child.value, str) else None
            bound = scalar(match[2]) if match else None
            if not isinstance(metric, str) or not metric:
                self.problems.add(
                    node.keys[metric], f"constraints.{metric}", "a metric's name must be text"
                )
            elif (
                match is None
                or isinstance(bound, bool)
                or not isinstance(bound, (int, float))
                or bound != bound
            ):
                text = (
                    f'must be a comparison ({", ".join(COMPARISONS)}) with a number, such as "<= '
                    f'5", got {child.show()}'
                )
                self.problems.add(child.mark, f"constraints.{metric}", text)
            else:
                constraints.append(Constraint(metric, match[1], float(bound)))
        return tuple(constraints)

    def _read_repeats(self) -> Repeats | None:
        """Parse `repeats`, which is a number or a mapping."""
        node = self.file.node("repeats")
        if node.value is not None and not node.is_map:
            node = Node({"count": node}, node.mark, {"count": node.mark})
        return check(Repeats, node, "repeats", self.file.at("repeats"), self.problems)

    # ---- the sampler

    def _read_search(self) -> Search | None:
        """Parse the algorithm and its options.

        `InitialPointsParser` parses `initial_points`, once the dimensions are known.
        """
        search = self._check(Search, "search")
        if search is None or not self._check_algorithm(search.algorithm):
            return None
        if search.portfolio is not None and search.portfolio not in (names := portfolio_files()):
            node = self.file.node("search").value["portfolio"]
            self.file.wrong("search.portfolio", wrong_name("search.portfolio", node, names))
        if search.options and search.algorithm == AUTO:
            text = "need `search.algorithm`, the name of the algorithm that has these options"
            self.file.wrong("search.options", text)
        elif search.options and registry.is_built_in("sampler", search.algorithm):
            self._check_options(self.file.node("search").value["options"], search.algorithm)
        return search

    def _check_algorithm(self, algorithm: str) -> bool:
        """Return True if an algorithm is built in or a reference `module:attr` to existing code.

        Otherwise, add a problem.

        The code is not imported here, so `sweeps run` checks later that it is a sampler.
        """
        valid = (AUTO, *registry.names("sampler"))
        if algorithm in valid:
            return True
        problem = registry.problem("sampler", algorithm, self.roots)
        if ":" not in algorithm:
            problem = wrong_name(
                "search.algorithm", self.file.node("search").value["algorithm"], valid
            )
        if problem is not None:
            self.file.wrong("search.algorithm", problem)
        return problem is None

    def _check_options(self, options: Node, algorithm: str) -> None:
        """Check the names and values of the options of a built-in algorithm."""
        own = option_names("sampler", algorithm)
        for name in options.value:
            if name not in own:
                others = [
                    other
                    for other in registry.names("sampler")
                    if name in option_names("sampler", other)
                ]
                hint = f"`{name}` is an option of {', '.join(others)}"
                if not others:
                    hint = did_you_mean(str(name), own) if own else f"{algorithm} has no options"
                text = f"unknown option of {algorithm}; {hint}"
                self.problems.add(options.keys[name], f"search.options.{name}", text)
        given = {name: child for name, child in options.value.items() if name in own}
        known = Node(given, options.mark, options.keys)
        model = registry.built_in("sampler", algorithm)
        check(model, known, "search.options", options.mark, self.problems)

    # ---- the scheduler

    def _read_scheduler(self) -> SchedulerSpec | None:
        """Parse the scheduler: a built-in one with options, or a reference to a user's class."""
        node, at, names = (
            self.file.node("scheduler"),
            self.file.at("scheduler"),
            registry.names("scheduler"),
        )
        tuned = report_domains(node, "scheduler", self.problems)
        if () in tuned or ("name",) in tuned:
            return None
        if node.value is not None and not node.is_map:
            self.problems.add(
                node.mark,
                "scheduler",
                f"must be a mapping with keys {', '.join(scheduler_keys())}, got {node.show()}",
            )
            return None
        given = {key: child for key, child in (node.value or {}).items() if child.value is not None}
        if not given:
            return SchedulerSpec(
                "none", dataclasses.asdict(registry.built_in("scheduler", "none")())
            )
        name = given.pop("name", Node(None, at))
        if isinstance(name.value, str) and ":" in name.value:
            return self._own_scheduler(name, given)
        for key in given:
            if key not in scheduler_keys():
                hint = suggest("scheduler", key, scheduler_keys())
                self.problems.add(node.keys[key], f"scheduler.{key}", f"unknown key; {hint}")
        if name.value in names:
            return self._built_in_scheduler(node, name, given)
        rule = (
            f"is required; give {rule_of({'enum': names})}"
            if name.value is None
            else wrong_name("scheduler.name", name, names)
        )
        self.problems.add(name.mark, "scheduler.name", rule)
        return None

    def _built_in_scheduler(
        self, node: Node, name: Node, given: Mapping[str, Node]
    ) -> SchedulerSpec | None:
        """Return a built-in scheduler, after checking its options against its class's fields."""
        before, at = len(self.problems), self.file.at("scheduler")
        own = option_names("scheduler", name.value)
        self._check_other_schedulers_keys(node, str(name.value), given, own)
        options = Node(
            {key: child for key, child in given.items() if key in own}, node.mark, node.keys
        )
        scheduler = check(
            registry.built_in("scheduler", name.value), options, "scheduler", at, self.problems
        )
        if scheduler is None or len(self.problems) > before:
            return None
        for key, text in scheduler.option_problems():
            self.file.wrong(f"scheduler.{key}", text)
        return SchedulerSpec(name.value, {key: getattr(scheduler, key) for key in own})

    def _own_scheduler(self, name: Node, given: Mapping[str, Node]) -> SchedulerSpec | None:
        """Return a user's scheduler.

        Its options are not checked here, because parsing runs no user code; `sweeps run` checks
        them.
        """
        if (problem := registry.problem("scheduler", name.value, self.roots)) is not None:
            self.problems.add(name.mark, "scheduler.name", problem)
            return None
        return SchedulerSpec(name.value, {key: child.plain() for key, child in given.items()})

    def _check_other_schedulers_keys(
        self, node: Node, name: str, given: Mapping[str, Node], own: tuple[str, ...]
    ) -> None:
        """Add a problem for each key that belongs to another built-in scheduler than the named one.

        Args:
            node: The section.
            name: The scheduler's name.
            given: Nodes of the section's other keys, by key.
            own: Keys that the named scheduler has.
        """
        for key in given:
            if key in own or key not in scheduler_keys():
                continue
            names = registry.names("scheduler")
            owners = [other for other in names if key in option_names("scheduler", other)]
            text = f"is a key of {', '.join(owners)}, not of {name}; keys of {name}"
            self.problems.add(node.keys[key], f"scheduler.{key}", f"{text}: {', '.join(own)}")

    # ---- contradictions between sections

    def _check_checkpoints(self) -> None:
        """Add a problem if checkpoints are limited, but trials may continue from those of others.

        Trials may do so under PBT, for example.
        """
        if (
            self.checkpoints
            and not self.checkpoints.all_stay
            and self.scheduler
            and perturbs(self.scheduler)
        ):
            text = (
                f"cannot be limited under {self.scheduler.name}, because its trials continue from "
                "the checkpoints of other trials"
            )
            self.file.wrong("checkpoints", text)

    def _check_objectives(self) -> None:
        """Add a problem for each section that contradicts the objectives."""
        scheduler = (
            self.scheduler.name if self.scheduler and compares_trials(self.scheduler) else None
        )
        built_in = registry.is_built_in("scheduler", scheduler or "")
        got = f"got {scheduler}" + (
            ""
            if built_in
            else ", and sweeps assumes that a scheduler of yours compares running trials"
        )
        if len(self.objectives) == 1 and self.objectives[0].metric in COSTS and scheduler:
            metric = self.objectives[0].metric
            text = (
                f"must be none, because a scheduler compares running trials, but `{metric}` is "
                f"known only after a trial has ended; {got}"
            )
            self.file.wrong("scheduler.name", text)
        if len(self.objectives) < 2:
            return
        if scheduler:
            text = (
                "must be none, because running trials with several objectives cannot be ranked "
                f"by one number; {got}"
            )
            self.file.wrong("scheduler.name", text)
        able = [
            name
            for name in registry.names("sampler")
            if registry.built_in("sampler", name).several_objectives
        ]
        if self.search and self.search.algorithm in set(registry.names("sampler")) - set(able):
            self.file.wrong(
                "search.algorithm",
                f"must be {rule_of({'enum': able})} for several objectives, got "
                f"{self.search.algorithm}",
            )
        if self.limits and self.limits.target is not None:
            self.file.wrong(
                "limits.target", "is allowed only for one objective, but the file has several"
            )

    def _check_population(self, scheduler: SchedulerSpec) -> None:
        """Add a problem for limits and repeats that contradict the population of a scheduler."""
        most, concurrent = (
            (self.limits.max_trials, self.limits.max_concurrent_trials)
            if self.limits
            else (0, None)
        )
        size = scheduler.population or most
        if scheduler.population and most not in (0, size):
            text = (
                f"must be equal to limits.max_trials, {most}, because every trial of "
                f"{scheduler.name} is in the population; got {size}"
            )
            self.file.wrong("scheduler.population", text)
        elif concurrent is not None and concurrent < size:
            rule = (
                f"must be at least {size}, the population of {scheduler.name}, because all its "
                "members start before any of them ends"
            )
            text = f"{rule}; got {concurrent}"
            self.file.wrong("limits.max_concurrent_trials", text)
        if self.repeats and self.repeats.count > 1:
            text = (
                f"must be 1 under {scheduler.name}, whose members change their parameters as they "
                f"train; got {self.repeats.count}"
            )
            self.file.wrong("repeats.count", text)


def option_names(kind: str, name: str) -> tuple[str, ...]:
    """Return the names of the options of a built-in sampler or scheduler.

    `kind` is "sampler" or "scheduler".
    """
    return tuple(field.name for field in dataclasses.fields(registry.built_in(kind, name)))


def scheduler_keys() -> tuple[str, ...]:
    """Return the keys that `scheduler` may have: the name, and all built-in options."""
    return tuple(
        dict.fromkeys(
            [
                "name",
                *(
                    key
                    for name in registry.names("scheduler")
                    for key in option_names("scheduler", name)
                ),
            ]
        )
    )


def perturbs(scheduler: SchedulerSpec) -> bool:
    """Return True if a scheduler is built in and changes the parameters of trials.

    Return False for a user's scheduler, because parsing runs no user code. `sweeps run` later asks
    the scheduler itself.
    """
    return (
        registry.is_built_in("scheduler", scheduler.name)
        and registry.built_in("scheduler", scheduler.name).perturbs
    )


def compares_trials(scheduler: SchedulerSpec) -> bool:
    """Return True if a scheduler compares trials before they end.

    A user's scheduler is assumed to compare trials.
    """
    if not registry.is_built_in("scheduler", scheduler.name):
        return True
    model = registry.built_in("scheduler", scheduler.name)
    return bool(model.stops or model.pauses or model.perturbs)
