"""The sections that say how a space is searched: objective, constraints, search, scheduler, repeats, limits and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sweeps.core.resources import COSTS
from sweeps.core.suggestions import did_you_mean
from sweeps.space.auto_algorithm import AUTO, Choice
from sweeps.space.conditions import COMPARISONS
from sweeps.space.nodes import Mark, Node, scalar
from sweeps.space.problems import Problems, check, note_domains
from sweeps.space.section_models import Checkpoints, Constraint, Limits, Objective, Repeats, Scheduler, Search
from sweeps.space.when_parser import COMPARISON

# Metrics that every trial has, whatever its loop reports: wall time, and what it held of CPUs and GPUs.
ALWAYS = COSTS
# Algorithms that know what to do with several objectives.
SEVERAL = ("nsga2", "tpe", "random", "grid", "qmc")

# ---- options

Rule = tuple[Callable[[Any], bool], str]  # whether a value will do; what it must be


def _integer(low: int) -> Rule:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low, f"an integer of at least {low}"


def _between(low: float, high: float, text: str) -> Rule:
    return lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and low <= v <= high, text


_BOOLEAN: Rule = (lambda v: isinstance(v, bool), "true or false")
_PROBABILITY = _between(0, 1, "a number from 0 to 1")


def _word(*words: str) -> Rule:
    return lambda v: v in words and isinstance(v, str), f"{', '.join(words[:-1])} or {words[-1]}"


TPE: Mapping[str, Rule] = {"n_startup_trials": _integer(0), "n_ei_candidates": _integer(1)}
GP: Mapping[str, Rule] = {"n_startup_trials": _integer(1), "deterministic_objective": _BOOLEAN}
# Of each algorithm. What is not given is the algorithm's own affair.
OPTIONS: Mapping[str, Mapping[str, Rule]] = {
    AUTO: {**GP, **TPE},
    "tpe": TPE,
    "random": {},
    "grid": {},
    "gp": GP,
    "qmc": {"qmc_type": _word("sobol", "halton"), "scramble": _BOOLEAN},
    "cmaes": {"n_startup_trials": _integer(1), "sigma0": _between(1e-9, 1e9, "a number above 0"), "popsize": _integer(2)},
    "nsga2": {
        "population_size": _integer(2),
        "mutation_prob": _PROBABILITY,
        "crossover_prob": _PROBABILITY,
        "swapping_prob": _PROBABILITY,
    },
}

# ---- schedulers

# The keys of each; `name` is everyone's.
SCHEDULERS: Mapping[str, tuple[str, ...]] = {
    "asha": ("max_t", "grace_period", "reduction_factor"),
    "hyperband": ("max_t", "grace_period", "reduction_factor", "brackets"),
    "median": ("max_t", "grace_period", "min_trials"),
    "pbt": ("max_t", "perturbation_interval", "quantile_fraction", "resample_probability", "population"),
    "none": ("max_t",),
}
# What a scheduler cannot do without, and why.
NEEDED: Mapping[str, Mapping[str, str]] = {
    "asha": {"max_t": "the report at which a trial ends"},
    "hyperband": {"max_t": "the report at which a trial ends"},
    "pbt": {"perturbation_interval": "the reports between two perturbations"},
}
# What its own keys are if they are not given; elsewhere they are None.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "hyperband": {"brackets": 3},
    "median": {"min_trials": 5},
    "pbt": {"quantile_fraction": 0.25, "resample_probability": 0.25},
}


class Searching:
    """Reads these sections.

    Args:
        root: the file.
        at: where the key of a section stands.
        problems: where to note.
    """

    def __init__(self, root: Node, at: Callable[[str], Mark], problems: Problems):
        self.root, self.at, self.problems = root, at, problems

    def node(self, section: str) -> Node:
        return self.root.value.get(section) or Node(None, self.at(section))

    def objectives(self) -> tuple[Objective, ...]:
        """One or several; () after noting a problem."""
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
        """Comparisons of metrics with numbers."""
        node = self.node("constraints")
        form = 'a mapping of metrics to comparisons, such as {latency_ms: "<= 5"}'
        if node.value is None or note_domains(node, "constraints", self.problems):
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
        """The algorithm and its options; `initial_points` are left as they are, for who knows the dimensions."""
        node = self.node("search")
        plain = node
        if node.is_map:
            plain = replace(node, value={k: v for k, v in node.value.items() if k not in ("options", "initial_points")})
        found = check(Search, plain, "search", self.at("search"), self.problems)
        options = node.value.get("options") if node.is_map else None
        if found is None or options is None or options.value is None or note_domains(options, "search.options", self.problems):
            return found
        if not options.is_map:
            self.problems.add(options.mark, "search.options", f"must be a mapping, got {options.show()}")
            return found
        self._check_options(options, found.algorithm)
        return replace(found, options=options.plain())

    def chosen(self, search: Search, choice: Choice) -> Search:
        """Return the search with the algorithm that stands for `auto`."""
        for name in search.options or ():
            if name in OPTIONS[AUTO] and name not in OPTIONS[choice.algorithm]:
                self._unknown_option(self.node("search").value["options"], name, choice.algorithm)
        return replace(search, algorithm=choice.algorithm)  # type: ignore[arg-type]

    def _check_options(self, options: Node, algorithm: str) -> None:
        rules = OPTIONS[algorithm]
        for name, child in options.value.items():
            if name not in rules:
                self._unknown_option(options, name, algorithm)
            elif not rules[name][0](child.plain()):
                self.problems.add(child.mark, f"search.options.{name}", f"must be {rules[name][1]}, got {child.show()}")

    def _unknown_option(self, options: Node, name: str, algorithm: str) -> None:
        others = [other for other, known in OPTIONS.items() if name in known and other != AUTO]
        rules = OPTIONS[algorithm]
        hint = f"it is one of {', '.join(others)}" if others else did_you_mean(str(name), rules) if rules else "it has none"
        self.problems.add(options.keys[name], f"search.options.{name}", f"unknown option of {algorithm}; {hint}")

    def scheduler(self) -> Scheduler | None:
        """The scheduler, with its own keys alone."""
        node, at = self.node("scheduler"), self.at("scheduler")
        found = check(Scheduler, node, "scheduler", at, self.problems)
        if found is None or not node.value:
            return found
        given = {key: child for key, child in node.value.items() if child.value is not None}
        if "name" not in given:
            self.problems.add(at, "scheduler.name", f"is required beside other keys: {_or(SCHEDULERS)}")
            return found
        self._strangers(node, given, found.name)
        for key, why in NEEDED.get(found.name, {}).items():
            if key not in given:
                self.problems.add(at, f"scheduler.{key}", f"is required by {found.name}: {why}")
        for key in ("grace_period", "perturbation_interval"):
            value = getattr(found, key)
            if key in given and found.max_t is not None and value > found.max_t:
                self.problems.add(given[key].mark, f"scheduler.{key}", f"must be at most max_t, {found.max_t}, got {value}")
        return replace(found, **{key: value for key, value in DEFAULTS.get(found.name, {}).items() if key not in given})

    def _strangers(self, node: Node, given: Mapping[str, Node], name: str) -> None:
        """Note the keys of other schedulers: one by one, or together at the `--set` that named this scheduler."""
        others = [key for key in given if key != "name" and key not in SCHEDULERS[name]]
        named = given["name"].mark
        if others and not named.line and all(given[key].mark.source != named.source for key in others):
            kept = "".join(f", {key}: {child.show()}" for key, child in given.items() if key not in ("name", *others))
            text = f"{name} does not take {', '.join(others)}; to drop them, replace the section: "
            self.problems.add(named, "scheduler", f"{text}--set 'scheduler={{name: {name}{kept}}}'")
            return
        for key in others:
            whose = [other for other, keys in SCHEDULERS.items() if key in keys]
            text = f"is a key of {' and '.join(whose)}, not of {name}, which takes {', '.join(SCHEDULERS[name])}"
            self.problems.add(node.keys[key], f"scheduler.{key}", text)

    def repeats(self) -> Repeats | None:
        """A number, or a mapping."""
        node, at = self.node("repeats"), self.at("repeats")
        if node.value is not None and not node.is_map:
            node = Node({"count": node}, node.mark, {"count": node.mark})
        return check(Repeats, node, "repeats", at, self.problems)

    def limits(self) -> Limits | None:
        return check(Limits, self.node("limits"), "limits", self.at("limits"), self.problems)

    def checkpoints(self, scheduler: Scheduler | None) -> Checkpoints | None:
        """What is kept of them; under PBT, whose trials go on from those of others, that is its own affair."""
        found = check(Checkpoints, self.node("checkpoints"), "checkpoints", self.at("checkpoints"), self.problems)
        if found and not found.all_stay and scheduler and scheduler.name == "pbt":
            self.problems.add(self.at("checkpoints"), "checkpoints", "is not for pbt, whose trials go on from the checkpoints of others")
        return found

    def together(
        self,
        objectives: tuple[Objective, ...],
        search: Search | None,
        scheduler: Scheduler | None,
        repeats: Repeats | None,
        limits: Limits | None,
    ) -> None:
        """Note what the sections say against each other."""
        if len(objectives) > 1:
            if scheduler and scheduler.name != "none":
                mark = self.node("scheduler").value["name"].mark
                text = f"several objectives need none: trials cannot be ranked by one number before they end, got {scheduler.name}"
                self.problems.add(mark, "scheduler.name", text)
            if search and search.algorithm not in (*SEVERAL, AUTO):
                mark = self.node("search").value["algorithm"].mark
                self.problems.add(mark, "search.algorithm", f"several objectives need {_or(SEVERAL)}, got {search.algorithm}")
            if limits and limits.target is not None:
                self.problems.add(self.node("limits").value["target"].mark, "limits.target", "is of one objective, but there are several")
        elif objectives and objectives[0].metric in COSTS and scheduler and scheduler.name != "none":
            mark = self.node("scheduler").value["name"].mark
            text = f"must be none: {objectives[0].metric} is known only when a trial has ended, and {scheduler.name} compares trials before"
            self.problems.add(mark, "scheduler.name", text)
        if scheduler and scheduler.name == "pbt":
            self._population(scheduler, repeats, limits)

    def _population(self, scheduler: Scheduler, repeats: Repeats | None, limits: Limits | None) -> None:
        """Note what PBT's population is not to stand beside."""
        given, size = self.node("scheduler").value, scheduler.population or (limits.max_trials if limits else 0)
        if scheduler.population and limits and limits.max_trials not in (0, scheduler.population):
            text = f"must be limits.max_trials, {limits.max_trials}, as pbt trains its population and no other trials; got {size}"
            self.problems.add(given["population"].mark, "scheduler.population", text)
        elif limits and limits.max_concurrent_trials is not None and limits.max_concurrent_trials < size:
            text = f"must be at least the population of pbt, {size}, whose members take turns; got {limits.max_concurrent_trials}"
            self.problems.add(self.node("limits").value["max_concurrent_trials"].mark, "limits.max_concurrent_trials", text)
        if repeats and repeats.count > 1:
            text = f"must be 1 under pbt, whose members change their parameters as they train; got {repeats.count}"
            self.problems.add(self.at("repeats"), "repeats.count", text)


def _or(words: Any) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"
