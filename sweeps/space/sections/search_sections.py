"""Parse the sections that configure the search.

These are `objective`, `constraints`, `search`, `scheduler`, `repeats`, `limits`, `checkpoints` and
`bundle`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.best_step import COMPARISONS, Constraint
from sweeps.core.plugins import plugin_registry
from sweeps.core.resources import COSTS
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.parse.key_suggestions import suggest
from sweeps.space.parse.nodes import Node
from sweeps.space.parse.section_checks import check, report_domains, wrong_name
from sweeps.space.parse.when_parser import comparison_of
from sweeps.space.schema.parameter_schema import rule_of
from sweeps.space.yaml.scalars import Scalar

from .auto_algorithm import AUTO
from .built_in_trainers import portfolio_files
from .search_models import (
    BundleKeys,
    Checkpoints,
    Limits,
    Objective,
    Repeats,
    SchedulerSpec,
    Search,
)

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

    If a section has a problem, its attribute has the default of the section. Without valid limits,
    `limits` is None, because the number of trials is not known.

    Args:
        root: The space file.
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

    def __init__(self, root: Node, roots: Iterable[Path] = ()):
        self.root = root
        self.roots = tuple(roots)
        self.objectives = self._read_objectives()
        self.constraints = self._read_constraints()
        self.search = self._read_search() or Search()
        self.scheduler = self._read_scheduler() or SchedulerSpec()
        self.repeats = self._read_repeats() or Repeats()
        self.limits = check(Limits, root.get("limits"))
        self.checkpoints = check(Checkpoints, root.get("checkpoints")) or Checkpoints()
        self.bundle = check(BundleKeys, root.get("bundle")) or BundleKeys()
        self._check_checkpoints()
        self._check_objectives()
        if perturbs(self.scheduler):
            self._check_population(self.scheduler)
        if self.scheduler.population and self.limits and not self.limits.max_trials:
            self.limits = replace(self.limits, max_trials=self.scheduler.population)

    @property
    def parsed(self) -> dict[str, Any]:
        """The parsed sections as keyword arguments of `Space`.

        The keys are the names of this object's attributes.
        """
        return {name: getattr(self, name) for name in ("objectives", *SEARCH_SECTIONS[1:])}

    def _read_objectives(self) -> tuple[Objective, ...]:
        """Parse `objective`. Return () after a problem."""
        node = self.root.get("objective")
        if not node.is_list:
            objective = check(Objective, node)
            return (objective,) if objective else ()
        if not node.value:
            node.wrong("must be a mapping or a list of mappings, got an empty list")
        objectives = []
        metrics = set()
        for child in node.value:
            objective = check(Objective, child)
            if objective is None:
                continue
            if objective.metric in metrics:
                text = f"`{objective.metric}` is already the metric of another objective"
                child.get("metric").wrong(text)
            metrics.add(objective.metric)
            objectives.append(objective)
        return tuple(objectives) if len(objectives) == len(node.value) else ()

    def _read_constraints(self) -> tuple[Constraint, ...]:
        """Parse `constraints`, a mapping of metrics to comparisons such as `<= 5`."""
        node = self.root.get("constraints")
        if node.value is None or report_domains(node):
            return ()
        if not node.is_map:
            node.wrong(
                f'must be a mapping of metrics to comparisons, such as {{latency_ms: "<= 5"}}, '
                f"got {node.show()}"
            )
            return ()
        constraints = []
        for metric, child in node.items():
            comparison = comparison_of(child.value)
            if not isinstance(metric, str) or not metric:
                child.wrong_key("a metric's name must be text")
            elif comparison is None:
                child.wrong(
                    f'must be a comparison ({", ".join(COMPARISONS)}) with a number, such as "<= '
                    f'5", got {child.show()}'
                )
            else:
                sign, bound = comparison
                constraints.append(Constraint(metric, sign, float(bound)))
        return tuple(constraints)

    def _read_repeats(self) -> Repeats | None:
        """Parse `repeats`, which is a number or a mapping."""
        node = self.root.get("repeats")
        if node.value is not None and not node.is_map:
            count = replace(node, path="repeats.count", key_mark=None)
            node = replace(node, value={"count": count})
        return check(Repeats, node)

    # ---- the sampler

    def _read_search(self) -> Search | None:
        """Parse the algorithm and its options.

        `InitialPointsParser` parses `initial_points`, once the dimensions are known.
        """
        node = self.root.get("search")
        search = check(Search, node)
        if search is None:
            return None
        algorithm = node.get("algorithm")
        if (problem := self._algorithm_problem(search.algorithm, algorithm)) is not None:
            algorithm.wrong(problem)
            return None
        if search.portfolio is not None and search.portfolio not in portfolio_files():
            portfolio = node.value["portfolio"]
            portfolio.wrong(wrong_name(portfolio.path, portfolio, portfolio_files()))
        if search.options and search.algorithm == AUTO:
            text = "need `search.algorithm`, the name of the algorithm that has these options"
            node.value["options"].wrong(text)
        elif search.options and plugin_registry.is_built_in("sampler", search.algorithm):
            self._check_options(node.value["options"], search.algorithm)
        return search

    def _algorithm_problem(self, algorithm: str, node: Node) -> str | None:
        """Return what is wrong with the name of an algorithm, or with a reference `module:attr`.

        The code is not imported here, so `sweeps run` checks later that it is a sampler.
        """
        valid = (AUTO, *plugin_registry.names("sampler"))
        if algorithm in valid:
            return None
        if ":" in algorithm:
            return plugin_registry.problem("sampler", algorithm, self.roots)
        return wrong_name(node.path, node, valid)

    def _check_options(self, options: Node, algorithm: str) -> None:
        """Check the names and values of the options of a built-in algorithm."""
        known = option_names("sampler", algorithm)
        known_nodes = {}
        for name, child in options.items():
            if name in known:
                known_nodes[name] = child
                continue
            if owners := _owners("sampler", name):
                hint = f"`{name}` is an option of {', '.join(owners)}"
            else:
                hint = did_you_mean(name, known) if known else f"{algorithm} has no options"
            child.wrong_key(f"unknown option of {algorithm}; {hint}")
        check(plugin_registry.built_in("sampler", algorithm), replace(options, value=known_nodes))

    # ---- the scheduler

    def _read_scheduler(self) -> SchedulerSpec | None:
        """Parse the scheduler: a built-in one with options, or a reference to a user's class."""
        node = self.root.get("scheduler")
        names = plugin_registry.names("scheduler")
        tuned = report_domains(node)
        if node in tuned or node.get("name") in tuned:
            return None
        if node.value is not None and not node.is_map:
            node.wrong(
                f"must be a mapping with keys {', '.join(scheduler_keys())}, got {node.show()}"
            )
            return None
        options = {key: child for key, child in node.items() if child.value is not None}
        # If the name is absent or null, `name` is a null node with the place of the section.
        name = options.pop("name", replace(node, value=None).get("name"))
        if name.value is None and not options:
            name = replace(name, value="none")
        if isinstance(name.value, str) and ":" in name.value:
            return self._own_scheduler(name, options)
        self._check_scheduler_keys(name.value, options)
        if name.value in names:
            return self._built_in_scheduler(node, name.value, options)
        rule = wrong_name("scheduler.name", name, names)
        if name.value is None:
            rule = f"is required; give {rule_of({'enum': names})}"
        name.wrong(rule)
        return None

    def _built_in_scheduler(
        self, node: Node, name: str, options: Mapping[str, Node]
    ) -> SchedulerSpec | None:
        """Return a built-in scheduler, after checking its options against its class's fields.

        Return None after a problem, also if `_check_scheduler_keys` has reported a key of another
        scheduler.
        """
        known = option_names("scheduler", name)
        known_nodes = {key: child for key, child in options.items() if key in known}
        model = plugin_registry.built_in("scheduler", name)
        scheduler = check(model, replace(node, value=known_nodes))
        if scheduler is None or len(known_nodes) < len(options):
            return None
        for key, text in scheduler.option_problems():
            self.root.wrong_inside(f"scheduler.{key}", text)
        return SchedulerSpec(name, {key: getattr(scheduler, key) for key in known})

    def _own_scheduler(self, name: Node, options: Mapping[str, Node]) -> SchedulerSpec | None:
        """Return a user's scheduler.

        Its options are not checked here, because parsing runs no user code; `sweeps run` checks
        them.
        """
        if (problem := plugin_registry.problem("scheduler", name.value, self.roots)) is not None:
            name.wrong(problem)
            return None
        return SchedulerSpec(name.value, {key: child.plain() for key, child in options.items()})

    def _check_scheduler_keys(self, name: Scalar, options: Mapping[str, Node]) -> None:
        """Add a problem for each key that a built-in scheduler does not have.

        Args:
            name: The scheduler's name, which may be wrong.
            options: Nodes of the section's other keys, by key.
        """
        for key, child in options.items():
            owners = _owners("scheduler", key)
            if not owners:
                hint = suggest("scheduler", key, scheduler_keys())
                child.wrong_key(f"unknown key; {hint}")
            elif name in plugin_registry.names("scheduler") and name not in owners:
                text = f"is a key of {', '.join(owners)}, not of {name}; keys of {name}"
                keys = ", ".join(option_names("scheduler", name))
                child.wrong_key(f"{text}: {keys}")

    # ---- contradictions between sections

    def _check_checkpoints(self) -> None:
        """Add a problem if checkpoints are limited, but trials may continue from those of others.

        Trials may do so under PBT, for example.
        """
        if not self.checkpoints.all_stay and perturbs(self.scheduler):
            text = (
                f"cannot be limited under {self.scheduler.name}, because its trials continue from "
                "the checkpoints of other trials"
            )
            self.root.wrong_inside("checkpoints", text)

    def _check_objectives(self) -> None:
        """Add a problem for each section that contradicts the objectives."""
        metrics = [objective.metric for objective in self.objectives]
        reason = None
        if len(metrics) > 1:
            reason = "running trials with several objectives cannot be ranked by one number"
        elif metrics and metrics[0] in COSTS:
            reason = (
                f"a scheduler compares running trials, but `{metrics[0]}` is known only after a "
                "trial has ended"
            )
        if reason and compares_trials(self.scheduler):
            name = self.scheduler.name
            text = f"must be none, because {reason}; got {name}"
            if not plugin_registry.is_built_in("scheduler", name):
                text += ", and sweeps assumes that a scheduler of yours compares running trials"
            self.root.wrong_inside("scheduler.name", text)
        if len(metrics) < 2:
            return
        samplers = plugin_registry.names("sampler")
        suitable = [
            name
            for name in samplers
            if plugin_registry.built_in("sampler", name).several_objectives
        ]
        algorithm = self.search.algorithm
        if algorithm in samplers and algorithm not in suitable:
            text = f"must be {rule_of({'enum': suitable})} for several objectives, got {algorithm}"
            self.root.wrong_inside("search.algorithm", text)
        if self.limits and self.limits.target is not None:
            self.root.wrong_inside(
                "limits.target", "is allowed only for one objective, but the file has several"
            )

    def _check_population(self, scheduler: SchedulerSpec) -> None:
        """Add a problem for limits and repeats that contradict the population of a scheduler."""
        limits = self.limits or Limits()
        max_trials = limits.max_trials  # 0 if the file has no such limit
        concurrent = limits.max_concurrent_trials
        population = scheduler.population or max_trials
        if max_trials not in (0, population):
            text = (
                f"must be equal to limits.max_trials, {max_trials}, because every trial of "
                f"{scheduler.name} is in the population; got {population}"
            )
            self.root.wrong_inside("scheduler.population", text)
        elif concurrent is not None and concurrent < population:
            text = (
                f"must be at least {population}, the population of {scheduler.name}, because all "
                f"its members start before any of them ends; got {concurrent}"
            )
            self.root.wrong_inside("limits.max_concurrent_trials", text)
        if self.repeats.count > 1:
            text = (
                f"must be 1 under {scheduler.name}, whose members change their parameters as they "
                f"train; got {self.repeats.count}"
            )
            self.root.wrong_inside("repeats.count", text)


def option_names(kind: str, name: str) -> tuple[str, ...]:
    """Return the names of the options of a built-in sampler or scheduler.

    `kind` is "sampler" or "scheduler".
    """
    return tuple(field.name for field in dataclasses.fields(plugin_registry.built_in(kind, name)))


def _owners(kind: str, option: str) -> list[str]:
    """Return the built-in samplers or schedulers that have an option."""
    return [name for name in plugin_registry.names(kind) if option in option_names(kind, name)]


def scheduler_keys() -> tuple[str, ...]:
    """Return the keys that `scheduler` may have: the name, and all built-in options."""
    keys = ["name"]
    for name in plugin_registry.names("scheduler"):
        keys += option_names("scheduler", name)
    return tuple(dict.fromkeys(keys))


def perturbs(scheduler: SchedulerSpec) -> bool:
    """Return True if a scheduler is built in and changes the parameters of trials.

    Return False for a user's scheduler, because parsing runs no user code. `sweeps run` later asks
    the scheduler itself.
    """
    return (
        plugin_registry.is_built_in("scheduler", scheduler.name)
        and plugin_registry.built_in("scheduler", scheduler.name).perturbs
    )


def compares_trials(scheduler: SchedulerSpec) -> bool:
    """Return True if a scheduler compares trials before they end.

    A user's scheduler is assumed to compare trials.
    """
    if not plugin_registry.is_built_in("scheduler", scheduler.name):
        return True
    model = plugin_registry.built_in("scheduler", scheduler.name)
    return bool(model.stops or model.pauses or model.perturbs)
