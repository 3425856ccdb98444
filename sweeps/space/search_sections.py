"""Parse the sections that say how a space is searched: objective, constraints, search, scheduler, repeats, limits and checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from sweeps.core import registry
from sweeps.core.parameter_schema import rule_of
from sweeps.core.resources import COSTS
from sweeps.core.suggestions import did_you_mean
from sweeps.space.auto_algorithm import AUTO, AUTO_CANDIDATES, Choice
from sweeps.space.conditions import COMPARISONS
from sweeps.space.nodes import Mark, Node, scalar
from sweeps.space.problems import Problems, check, report_domains, wrong_name
from sweeps.space.section_models import Checkpoints, Constraint, Limits, Objective, Repeats, SchedulerSpec, Search
from sweeps.space.synonyms import suggest
from sweeps.space.when_parser import COMPARISON

# Metrics that every trial has, whatever its loop reports: its wall time, CPU seconds and GPU seconds.
ALWAYS = COSTS


class Searching:
    """Parser of the sections that say how a space is searched.

    Args:
        root: The root node of the space file.
        at: Returns the place of a section's key.
        problems: Collects the problems.
        roots: Folders in which references to the user's modules are looked up.
    """

    def __init__(self, root: Node, at: Callable[[str], Mark], problems: Problems, roots: Iterable[Path] = ()):
        self.root, self.at, self.problems, self.roots = root, at, problems, tuple(roots)

    def node(self, section: str) -> Node:
        """Return the node of a section. An absent section is a null node."""
        return self.root.value.get(section) or Node(None, self.at(section))

    def objectives(self) -> tuple[Objective, ...]:
        """Parse `objective`. Return () after a problem."""
        node = self.node("objective")
        if not node.is_list:
            found = check(Objective, node, "objective", self.at("objective"), self.problems)
            return (found,) if found else ()
        if not node.value:
            self.problems.add(node.mark, "objective", "must be a mapping or a list of mappings, got an empty list")
        read = [check(Objective, child, f"objective.{i}", child.mark, self.problems) for i, child in enumerate(node.value)]
        known: dict[str, int] = {}
        for i, one in enumerate(read):
            if one is not None and known.setdefault(one.metric, i) != i:
                mark = node.value[i].value["metric"].mark
                self.problems.add(mark, f"objective.{i}.metric", f"`{one.metric}` is an objective already")
        return tuple(one for one in read if one is not None) if None not in read else ()

    def constraints(self) -> tuple[Constraint, ...]:
        """Parse `constraints`: a comparison with a number for each metric."""
        node = self.node("constraints")
        form = 'a mapping of metrics to comparisons, such as {latency_ms: "<= 5"}'
        if node.value is None or report_domains(node, "constraints", self.problems):
            return ()
        if not node.is_map:
            self.problems.add(node.mark, "constraints", f"must be {form}, got {node.show()}")
            return ()
        found = []
        for metric, child in node.value.items():
            match = COMPARISON.match(child.value.strip()) if isinstance(child.value, str) else None
            bound = scalar(match[2]) if match else None
            if not isinstance(metric, str) or not metric:
                self.problems.add(node.keys[metric], f"constraints.{metric}", "a metric's name must be text")
            elif match is None or isinstance(bound, bool) or not isinstance(bound, (int, float)) or bound != bound:
                text = f'must be a comparison with a number, one of {", ".join(COMPARISONS)}, such as "<= 5", got {child.show()}'
                self.problems.add(child.mark, f"constraints.{metric}", text)
            else:
                found.append(Constraint(metric, match[1], float(bound)))
        return tuple(found)

    def search(self) -> Search | None:
        """Parse the algorithm and its options. `InitialPointsParser` parses `initial_points`, once the dimensions are known."""
        node = self.node("search")
        own = node
        if node.is_map:
            own = replace(node, value={k: v for k, v in node.value.items() if k not in ("options", "initial_points")})
        found = check(Search, own, "search", self.at("search"), self.problems)
        if found is None or not self._check_algorithm(found.algorithm):
            return None
        options = node.value.get("options") if node.is_map else None
        if options is None or options.value is None or report_domains(options, "search.options", self.problems):
            return found
        if not options.is_map:
            self.problems.add(options.mark, "search.options", f"must be a mapping, got {options.show()}")
            return found
        if found.algorithm == AUTO or registry.is_built_in("sampler", found.algorithm):
            self._check_options(options, found.algorithm)
        return replace(found, options=options.plain())

    def _check_algorithm(self, algorithm: str) -> bool:
        """Return whether an algorithm is built in or a valid reference; if not, add a problem. `run` checks the class itself."""
        valid = (AUTO, *registry.names("sampler"))
        if algorithm in valid:
            return True
        node = self.node("search").value["algorithm"]
        if ":" not in algorithm:
            self.problems.add(node.mark, "search.algorithm", wrong_name("search.algorithm", node, valid))
        elif (problem := registry.problem("sampler", algorithm, self.roots)) is not None:
            self.problems.add(node.mark, "search.algorithm", problem)
        else:
            return True
        return False

    def chosen(self, search: Search, choice: Choice) -> Search:
        """Return the search with the algorithm that was chosen for `auto`, and check that this algorithm has the given options."""
        own = option_names("sampler", choice.algorithm) if registry.is_built_in("sampler", choice.algorithm) else ()
        for name in search.options or ():
            if name in _algorithm_options(AUTO) and name not in own:
                self._unknown_option(self.node("search").value["options"], name, choice.algorithm)
        return replace(search, algorithm=choice.algorithm)

    def _check_options(self, options: Node, algorithm: str) -> None:
        """Check the names and values of the options of a built-in algorithm."""
        known = _algorithm_options(algorithm)
        for name in options.value:
            if name not in known:
                self._unknown_option(options, name, algorithm)
        for model in dict.fromkeys(known.values()):
            given = {name: child for name, child in options.value.items() if known.get(name) is model}
            check(model, Node(given, options.mark, options.keys), "search.options", options.mark, self.problems)

    def _unknown_option(self, options: Node, name: str, algorithm: str) -> None:
        """Add a problem for an option that the algorithm does not have."""
        others = [other for other in registry.names("sampler") if name in option_names("sampler", other)]
        valid = _algorithm_options(algorithm)
        hint = f"it is one of {', '.join(others)}" if others else did_you_mean(str(name), valid) if valid else "it has none"
        self.problems.add(options.keys[name], f"search.options.{name}", f"unknown option of {algorithm}; {hint}")

    def scheduler(self) -> SchedulerSpec | None:
        """Parse the scheduler: a built-in scheduler with its options, or a reference to a user's class."""
        node, at = self.node("scheduler"), self.at("scheduler")
        tuned = report_domains(node, "scheduler", self.problems)
        if () in tuned or ("name",) in tuned:
            return None
        if node.value is not None and not node.is_map:
            self.problems.add(node.mark, "scheduler", f"must be a mapping with keys {', '.join(scheduler_keys())}, got {node.show()}")
            return None
        given = {key: child for key, child in (node.value or {}).items() if child.value is not None}
        if not given:
            return SchedulerSpec("none", dataclasses.asdict(registry.built_in("scheduler", "none")()))
        name = given.pop("name", Node(None, at))
        if isinstance(name.value, str) and ":" in name.value:
            return self._own_scheduler(name, given)
        self._unknown_keys(node, given)
        names = registry.names("scheduler")
        if name.value in names:
            return self._built_in_scheduler(node, name, given)
        rule = f"is required; give {rule_of({'enum': names})}" if name.value is None else wrong_name("scheduler.name", name, names)
        self.problems.add(name.mark, "scheduler.name", rule)
        return None

    def _built_in_scheduler(self, node: Node, name: Node, given: Mapping[str, Node]) -> SchedulerSpec | None:
        """Return a built-in scheduler, after checking its options against the fields of its class."""
        before, at = len(self.problems), self.at("scheduler")
        own = option_names("scheduler", name.value)
        self._other_schedulers_keys(node, name, given, own)
        options = Node({key: child for key, child in given.items() if key in own}, node.mark, node.keys)
        scheduler = check(registry.built_in("scheduler", name.value), options, "scheduler", at, self.problems)
        if scheduler is None or len(self.problems) > before:
            return None
        for key, text in scheduler.option_problems():
            self.problems.add(given[key].mark if key in given else at, f"scheduler.{key}", text)
        return SchedulerSpec(name.value, {key: getattr(scheduler, key) for key in own})

    def _own_scheduler(self, name: Node, given: Mapping[str, Node]) -> SchedulerSpec | None:
        """Return a user's scheduler. Its options are not checked here, because `validate` runs no user code; `run` checks them."""
        if (problem := registry.problem("scheduler", name.value, self.roots)) is not None:
            self.problems.add(name.mark, "scheduler.name", problem)
            return None
        return SchedulerSpec(name.value, {key: child.plain() for key, child in given.items()})

    def _unknown_keys(self, node: Node, given: Mapping[str, Node]) -> None:
        """Add a problem for each key that no built-in scheduler has."""
        known = scheduler_keys()
        for key in given:
            if key not in known:
                self.problems.add(node.keys[key], f"scheduler.{key}", f"unknown key; {suggest('scheduler', key, known)}")

    def _other_schedulers_keys(self, node: Node, name: Node, given: Mapping[str, Node], own: tuple[str, ...]) -> None:
        """Add problems for keys that belong to other schedulers.

        If `--set` named this scheduler and the keys are elsewhere, one problem covers all of them. Otherwise each key has its own problem.
        """
        others = [key for key in given if key not in own and key in scheduler_keys()]
        if others and not name.mark.line and all(given[key].mark.source != name.mark.source for key in others):
            kept = "".join(f", {key}: {child.show()}" for key, child in given.items() if key not in others)
            text = f"{name.value} does not take {', '.join(others)}; to drop them, replace the section: "
            self.problems.add(name.mark, "scheduler", f"{text}--set 'scheduler={{name: {name.value}{kept}}}'")
            return
        for key in others:
            whose = [other for other in registry.names("scheduler") if key in option_names("scheduler", other)]
            text = f"is a key of {' and '.join(whose)}, not of {name.value}, which takes {', '.join(own)}"
            self.problems.add(node.keys[key], f"scheduler.{key}", text)

    def repeats(self) -> Repeats | None:
        """Parse `repeats`, which is a number or a mapping."""
        node, at = self.node("repeats"), self.at("repeats")
        if node.value is not None and not node.is_map:
            node = Node({"count": node}, node.mark, {"count": node.mark})
        return check(Repeats, node, "repeats", at, self.problems)

    def limits(self) -> Limits | None:
        """Parse `limits`."""
        return check(Limits, self.node("limits"), "limits", self.at("limits"), self.problems)

    def checkpoints(self, scheduler: SchedulerSpec | None) -> Checkpoints | None:
        """Parse `checkpoints`. If trials exchange checkpoints, as under PBT, all checkpoints must be kept."""
        found = check(Checkpoints, self.node("checkpoints"), "checkpoints", self.at("checkpoints"), self.problems)
        if found and not found.all_stay and scheduler and perturbs(scheduler):
            text = f"is not for {scheduler.name}, whose trials continue from the checkpoints of other trials"
            self.problems.add(self.at("checkpoints"), "checkpoints", text)
        return found

    def together(
        self,
        objectives: tuple[Objective, ...],
        search: Search | None,
        scheduler: SchedulerSpec | None,
        repeats: Repeats | None,
        limits: Limits | None,
    ) -> None:
        """Add a problem for each contradiction between sections.

        Args:
            objectives: The objectives; () if they are invalid.
            search: The sampler; None if the section is invalid.
            scheduler: The scheduler; None if the section is invalid.
            repeats: The repeats; None if the section is invalid.
            limits: The limits; None if the section is invalid.
        """
        if len(objectives) > 1:
            if scheduler and compares_trials(scheduler):
                mark = self.node("scheduler").value["name"].mark
                text = f"several objectives need none: trials cannot be ranked by one number before they end, got {scheduler.name}"
                self.problems.add(mark, "scheduler.name", text)
            able = [name for name in registry.names("sampler") if registry.built_in("sampler", name).several_objectives]
            if search and search.algorithm in registry.names("sampler") and search.algorithm not in able:
                mark = self.node("search").value["algorithm"].mark
                self.problems.add(mark, "search.algorithm", f"several objectives need {rule_of({'enum': able})}, got {search.algorithm}")
            if limits and limits.target is not None:
                self.problems.add(self.node("limits").value["target"].mark, "limits.target", "is of one objective, but there are several")
        elif objectives and objectives[0].metric in COSTS and scheduler and compares_trials(scheduler):
            mark = self.node("scheduler").value["name"].mark
            text = f"must be none: {objectives[0].metric} is known only when a trial has ended, and {scheduler.name} compares trials before"
            self.problems.add(mark, "scheduler.name", text)
        if scheduler and perturbs(scheduler):
            self._population(scheduler, repeats, limits)

    def _population(self, scheduler: SchedulerSpec, repeats: Repeats | None, limits: Limits | None) -> None:
        """Add a problem for limits and repeats that contradict the population of a scheduler."""
        given, size = self.node("scheduler").value, scheduler.population or (limits.max_trials if limits else 0)
        if scheduler.population and limits and limits.max_trials not in (0, scheduler.population):
            text = f"must be limits.max_trials, {limits.max_trials}, because {scheduler.name} trains only its population; got {size}"
            self.problems.add(given["population"].mark, "scheduler.population", text)
        elif limits and limits.max_concurrent_trials is not None and limits.max_concurrent_trials < size:
            text = (
                f"must be at least the population of {scheduler.name}, {size}, whose members take turns; got {limits.max_concurrent_trials}"
            )
            self.problems.add(self.node("limits").value["max_concurrent_trials"].mark, "limits.max_concurrent_trials", text)
        if repeats and repeats.count > 1:
            text = f"must be 1 under {scheduler.name}, whose members change their parameters as they train; got {repeats.count}"
            self.problems.add(self.at("repeats"), "repeats.count", text)


def _algorithm_options(algorithm: str) -> dict[str, type]:
    """Return the options of an algorithm, with the class that validates each. `auto` has the options of `tpe` and `gp`."""
    names = AUTO_CANDIDATES if algorithm == AUTO else (algorithm,)
    models = [registry.built_in("sampler", name) for name in names]
    return {field.name: model for model in models for field in dataclasses.fields(model)}


def option_names(kind: str, name: str) -> tuple[str, ...]:
    """Return the names of the options of a built-in plug-in."""
    return tuple(field.name for field in dataclasses.fields(registry.built_in(kind, name)))


def scheduler_keys() -> tuple[str, ...]:
    """Return the keys that `scheduler` may have: the name, and the options of all built-in schedulers."""
    return tuple(dict.fromkeys(["name", *(key for name in registry.names("scheduler") for key in option_names("scheduler", name))]))


def perturbs(scheduler: SchedulerSpec) -> bool:
    """Return whether a built-in scheduler changes the parameters of trials. False for a user's scheduler, which `run` checks instead."""
    return registry.is_built_in("scheduler", scheduler.name) and registry.built_in("scheduler", scheduler.name).perturbs


def compares_trials(scheduler: SchedulerSpec) -> bool:
    """Return whether a scheduler compares trials before they end. A user's scheduler is assumed to do so."""
    if not registry.is_built_in("scheduler", scheduler.name):
        return True
    model = registry.built_in("scheduler", scheduler.name)
    return bool(model.stops or model.pauses or model.perturbs)
