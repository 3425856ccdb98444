"""Translate the configuration of a W&B sweep into a space file. Pure functions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sweeps.core.errors import InputError, Problem
from sweeps.space.parse.foreign_syntax import translate_mapping
from sweeps.space.parse.nodes import Mark, Node
from sweeps.space.yaml.yaml_writer import flow

from .yaml_text import line, space_file, yaml_value

ALGORITHMS = {"grid": "grid", "random": "random", "bayes": "gp"}
DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
# Number of trials if the configuration has no `run_cap`.
TRIALS = 30
# Largest step of a trial if `early_terminate` names none.
STEPS = 100
# Our name of each key of `early_terminate` that has a counterpart.
EARLY_TERMINATE = {"max_iter": "max_t", "min_iter": "grace_period", "eta": "reduction_factor"}
# The keys of a parameter that define its values.
DISTRIBUTION = ("distribution", "value", "values", "min", "max", "q", "mu", "sigma")


@dataclass
class _Translation:
    """The method of the sweep, and the notes and the problems of its translation."""

    method: str
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add_problem(self, mark: Mark, key: str, text: str) -> None:
        """Add a problem of a key."""
        self.problems.append(Problem(str(mark), f"{key}: {text}"))


def space_text(root: Node, source: str) -> str:
    """Return the text of a space file for the configuration of a W&B sweep.

    Each key that is translated is removed from the configuration, so that the others are left.

    Args:
        root: The parsed configuration.
        source: Name of its file.

    Raises:
        InputError: The configuration has no parameters, or a parameter has no counterpart.
    """
    if not root.is_map or not _section(root, "parameters").value:
        raise InputError(source, "is not a W&B sweep: it has no mapping `parameters`")
    method = _take(root, "method")
    translation = _Translation(str(method.plain() or "bayes"))
    if translation.method not in ALGORITHMS:
        translation.add_problem(
            method.mark, "method", f"must be {', '.join(ALGORITHMS)}, got {translation.method}"
        )
    params = list(_parameters(_section(root, "parameters"), translation, 4))
    trainer = _trainer(root, translation)
    sections = [_objective(root, translation), *_search(root, translation)]
    name = str(_take(root, "name").value or source.rpartition("/")[2].partition(".")[0])
    if other_keys := ", ".join(_remaining_keys(root)):
        text = f"These keys have no counterpart and were left out: {other_keys}."
        translation.notes.append(text)
    if translation.problems:
        raise InputError(translation.problems)
    return space_file(
        f"--from-wandb {source}",
        translation.notes,
        name=name,
        trainer=trainer,
        sections=sections,
        params=params,
    )


def _take(node: Node, key: str) -> Node:
    """Remove a key from a mapping, and return its value.

    A node with the value None if the mapping has no such key.
    """
    taken: Node = node.value.pop(key, Node(None, node.mark))
    return taken


def _section(node: Node, key: str) -> Node:
    """Return the mapping under a key; an empty mapping if there is none."""
    child: Node | None = node.value.get(key)
    return child if child is not None and child.is_map else Node({}, node.mark)


def _remaining_keys(node: Node, path: str = "") -> Iterator[str]:
    """Yield the dotted path of each key that was not removed."""
    for key, child in node.value.items():
        if child.is_map:
            yield from _remaining_keys(child, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def _parameters(node: Node, translation: _Translation, indent: int) -> Iterator[str]:
    """Yield the lines of `space.params`."""
    for name, child in node.value.items():
        if not child.is_map:
            translation.add_problem(
                child.mark,
                f"parameters.{name}",
                f"must be a mapping such as {{min: 0, max: 1}}, got {child.show()}",
            )
            continue
        nested = _section(child, "parameters")
        if nested.value:
            yield line(f"{flow(str(name))}:", indent=indent)
            yield from _parameters(nested, translation, indent + 2)
            continue
        domain = _domain(child, f"parameters.{name}", translation)
        if domain is not None:
            yield line(f"{flow(str(name))}: {domain}", indent=indent)


def _domain(node: Node, path: str, translation: _Translation) -> str | None:
    """Return the domain of one parameter, or its constant value.

    Add a problem and return None if there is no counterpart.
    """
    keys = {key: _take(node, key) for key in DISTRIBUTION if key in node.value}
    kind = str(keys["distribution"].value) if "distribution" in keys else _default_kind(keys)
    if kind == "constant" and "value" in keys:
        return yaml_value(keys["value"].plain())
    values = keys["values"].plain() if "values" in keys else None
    if kind in ("categorical", "categorical_w_probabilities") and isinstance(values, list):
        if len(values) == 1:
            return yaml_value(values[0])
        return f"{{{'grid' if translation.method == 'grid' else 'choice'}: {yaml_value(values)}}}"
    keys["distribution"] = Node(kind, node.mark, raw=kind)
    hint = translate_mapping(Node(keys, node.mark))
    # The hint is "write {domain}", perhaps followed by how the bounds are computed, in parentheses.
    match = re.fullmatch(r"write (\{\w+: \[[^]]*\]\})((?: \(.*\))?)", hint or "", re.S)
    if match is None:
        translation.add_problem(
            node.mark,
            path,
            f"the distribution `{kind}` has no counterpart; {hint or 'write a domain of sweeps'}",
        )
        return None
    if match[2]:
        translation.notes.append(f"{path}: the bounds are computed{match[2]}.")
    return match[1]


def _default_kind(keys: dict[str, Node]) -> str:
    """Return the distribution that W&B uses if a parameter names none."""
    if "values" in keys:
        return "categorical"
    if "value" in keys:
        return "constant"
    if {"mu", "sigma"} & set(keys):
        return "normal"
    bounds = [keys[key].value for key in ("min", "max") if key in keys]
    return "int_uniform" if bounds and all(isinstance(b, int) for b in bounds) else "uniform"


def _trainer(root: Node, translation: _Translation) -> str:
    """Return the value of the key `trainer`: the command of the configuration, without a shell."""
    program = str(_take(root, "program").value or "train.py")
    node = _take(root, "command")
    command = node.plain() or list(DEFAULT_COMMAND)
    if not isinstance(command, list):
        translation.add_problem(node.mark, "command", "must be a list")
        command = []
    words: list[str] = []
    for part in map(str, command):
        if part in ("${env}", "/usr/bin/env"):
            continue
        if part.startswith("${args"):
            if part != "${args}":
                translation.notes.append(
                    f'`{part}` became "{{args}}", which passes `--NAME=VALUE` for each parameter: '
                    "adapt the script."
                )
            words.append("{args}")
        else:
            text = part.replace("${interpreter}", "python").replace("${program}", program)
            words.append(re.sub(r"\$\{envvar:(\w+)\}", r"${\1}", text))
    translation.notes.append(
        "The script must print the metric as lines of JSON, or call sweeps.report: see "
        "docs/how-to/command.md."
    )
    return f"{{command: {flow(words)}}}"


def _objective(root: Node, translation: _Translation) -> str:
    """Return the key `objective`."""
    metric = _section(root, "metric")
    name = _take(metric, "name").plain()
    goal = _take(metric, "goal").plain() or "minimize"
    if name is None:
        translation.notes.append(
            "The sweep had no metric: replace `loss` by the metric that the script reports."
        )
    if (target := _take(metric, "target").value) is not None:
        translation.notes.append(f"metric.target: add `target: {target}` to `limits`.")
    return f"objective: {{metric: {yaml_value(str(name or 'loss'))}, goal: {yaml_value(goal)}}}"


def _search(root: Node, translation: _Translation) -> Iterator[str]:
    """Yield the keys `search`, `scheduler` and `limits`."""
    yield line(
        f"search: {{algorithm: {ALGORITHMS.get(translation.method, 'gp')}}}",
        f"method: {translation.method}",
    )
    early_terminate = _section(root, "early_terminate")
    if early_terminate.value:
        _take(early_terminate, "type")
        brackets = _take(early_terminate, "s").plain()
        is_hyperband = isinstance(brackets, int) and brackets > 1
        options = {"name": "hyperband" if is_hyperband else "asha", "max_t": STEPS}
        if "max_iter" not in early_terminate.value:
            translation.notes.append(
                f"scheduler.max_t: {STEPS} is a guess: write the number of reports of a whole "
                "trial."
            )
        for key, our_key in EARLY_TERMINATE.items():
            if key in early_terminate.value:
                options[our_key] = _take(early_terminate, key).plain()
        yield f"scheduler: {yaml_value(options)}"
    run_cap = _take(root, "run_cap").plain()
    # Without a cap, a grid search ends after its last cell.
    if translation.method != "grid" or run_cap:
        if run_cap is None:
            translation.notes.append(
                f"limits.max_trials: {TRIALS} is a guess, because the sweep had no `run_cap`."
            )
        yield f"limits: {{max_trials: {yaml_value(run_cap or TRIALS)}}}"
