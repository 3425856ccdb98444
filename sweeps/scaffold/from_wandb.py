"""Translate the configuration of a W&B sweep into a space file. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.scaffold.yaml_text import comment_lines, line, quoted, sweep_name
from sweeps.space.foreign_syntax import translate_mapping
from sweeps.space.nodes import Mark, Node
from sweeps.space.yaml_writer import flow

ALGORITHMS = {"grid": "grid", "random": "random", "bayes": "gp"}
KNOWN = {
    "program",
    "command",
    "method",
    "metric",
    "parameters",
    "early_terminate",
    "run_cap",
    "name",
    "description",
    "project",
    "entity",
}
DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
# Number of trials if the configuration has no `run_cap`, and largest step if `early_terminate` names none.
TRIALS, STEPS = 30, 100
_DISTRIBUTIONS_OF_EXPONENTS = {"log_uniform": "loguniform", "q_log_uniform": "qloguniform"}


class _Translation:
    """Collects the notes and the problems of a translation."""

    def __init__(self, source: str, method: str):
        self.source, self.method = source, method
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def problem(self, mark: Mark, key: str, text: str) -> None:
        self.problems.append(Problem(str(mark), f"{key}: {text}"))


def space_text(root: Node, source: str) -> str:
    """Return the text of a space file for the configuration of a W&B sweep.

    Args:
        root: the parsed configuration.
        source: name of its file.

    Raises:
        InputError: the configuration has no parameters, or a parameter has no counterpart.
    """
    if (
        not root.is_map
        or not _child(root, "parameters").is_map
        or not _child(root, "parameters").value
    ):
        raise InputError(Problem(source, "is not a W&B sweep: it has no mapping `parameters`"))
    method = str(_child(root, "method").plain() or "bayes")
    found = _Translation(source, method)
    if method not in ALGORITHMS:
        found.problem(
            _child(root, "method").mark, "method", f"must be {', '.join(ALGORITHMS)}, got {method}"
        )
    parameters = list(_parameters(_child(root, "parameters"), found, 4))
    trainer = _trainer(root, found)
    rest = [_objective(root, found), *_search(root, found)]
    unknown = [str(key) for key in root.value if key not in KNOWN]
    if unknown:
        found.notes.append(
            f"These keys have no counterpart and were left out: {', '.join(unknown)}."
        )
    if found.problems:
        raise InputError(found.problems)
    name = sweep_name(
        str(_child(root, "name").value or source.rpartition("/")[2].partition(".")[0])
    )
    head = comment_lines(f"Written by `sweeps init --from-wandb {source}`.")
    for note in found.notes:
        head += ["#", *comment_lines(note)]
    return (
        "\n".join(
            [
                *head,
                f"name: {quoted(name)}",
                trainer,
                "",
                *rest,
                "",
                "space:",
                "  params:",
                *parameters,
            ]
        )
        + "\n"
    )


def _child(node: Node, key: str) -> Node:
    """Return the value of a key; a node with the value None if the mapping has no such key."""
    return node.value.get(key, Node(None, node.mark)) if node.is_map else Node(None, node.mark)


def _parameters(node: Node, found: _Translation, indent: int) -> Iterator[str]:
    """Yield the lines of `space.params`."""
    for name, child in node.value.items():
        if child.is_map and _child(child, "parameters").is_map:
            yield line(f"{flow(str(name))}:", indent=indent)
            yield from _parameters(child.value["parameters"], found, indent + 2)
            continue
        if not child.is_map:
            found.problem(
                child.mark,
                f"parameters.{name}",
                f"must be a mapping such as {{min: 0, max: 1}}, got {child.show()}",
            )
            continue
        domain = _domain(child, f"parameters.{name}", found)
        if domain is not None:
            yield line(f"{flow(str(name))}: {domain}", indent=indent)


def _domain(node: Node, path: str, found: _Translation) -> str | None:
    """Return the domain of one parameter, or its constant value. Add a problem and return None if there is no counterpart."""
    given = {str(key): child for key, child in node.value.items()}
    kind = str(given["distribution"].value) if "distribution" in given else _implied(given)
    if "probabilities" in given:
        found.notes.append(
            f"{path}: `probabilities` has no counterpart, so all values are equally likely."
        )
    if kind == "constant" and "value" in given:
        return quoted(given["value"].plain())
    if (
        kind in ("categorical", "categorical_w_probabilities")
        and "values" in given
        and given["values"].is_list
    ):
        values = given["values"].plain()
        if len(values) == 1:
            return quoted(values[0])
        return f"{{{'grid' if found.method == 'grid' else 'choice'}: {quoted(values)}}}"
    ends: list[Any] = [given[key].value if key in given else None for key in ("min", "max")]
    if kind in _DISTRIBUTIONS_OF_EXPONENTS and all(
        isinstance(end, (int, float)) and not isinstance(end, bool) for end in ends
    ):
        step = [_child(node, "q").plain() or 1] if kind.startswith("q") else []
        try:
            bounds = [float(f"{math.exp(float(end)):.6g}") for end in ends]
        except OverflowError:
            found.problem(node.mark, path, "the exponents `min` and `max` must be at most 709")
            return None
        return quoted({_DISTRIBUTIONS_OF_EXPONENTS[kind]: [*bounds, *step]})
    named = {
        key: child for key, child in given.items() if key not in ("probabilities", "description")
    }
    named["distribution"] = Node(kind, node.mark, raw=kind)
    hint = translate_mapping(Node(named, node.mark, dict.fromkeys(named, node.mark)))
    written = re.fullmatch(r"write (\{\w+: \[.*\]\})", hint or "", re.S)
    if written is None:
        found.problem(
            node.mark,
            path,
            f"the distribution `{kind}` has no counterpart; {hint or 'write a domain of sweeps'}",
        )
        return None
    return written[1]


def _implied(given: dict[str, Node]) -> str:
    """Return the distribution that W&B uses if a parameter names none."""
    if "values" in given:
        return "categorical"
    if "value" in given:
        return "constant"
    if {"mu", "sigma"} & set(given):
        return "normal"
    ends = [given[key].value for key in ("min", "max") if key in given]
    return "int_uniform" if ends and all(isinstance(end, int) for end in ends) else "uniform"


def _trainer(root: Node, found: _Translation) -> str:
    """Return the key `trainer`: the command of the configuration, without a shell."""
    program = str(_child(root, "program").value or "train.py")
    command = _child(root, "command").plain() or list(DEFAULT_COMMAND)
    if not isinstance(command, list):
        found.problem(_child(root, "command").mark, "command", "must be a list")
        command = []
    words: list[str] = []
    for part in map(str, command):
        if part in ("${env}", "/usr/bin/env"):
            continue
        if part.startswith("${args"):
            if part != "${args}":
                found.notes.append(
                    f'`{part}` became "{{args}}", which passes `--NAME=VALUE` for each parameter: adapt the script.'
                )
            words.append("{args}")
        else:
            text = part.replace("${interpreter}", "python").replace("${program}", program)
            words.append(re.sub(r"\$\{envvar:(\w+)\}", r"${\1}", text))
    found.notes.append(
        "The script must print the metric as lines of JSON, or call sweeps.report: see docs/how-to/command.md."
    )
    return f"trainer: {{command: {flow(words)}}}"


def _objective(root: Node, found: _Translation) -> str:
    """Return the key `objective`."""
    metric = _child(root, "metric")
    name = _child(metric, "name").plain()
    goal = _child(metric, "goal").plain() or "minimize"
    if name is None:
        found.notes.append(
            "The sweep had no metric: replace `loss` by the metric that the script reports."
        )
    if target := _child(metric, "target").value:
        found.notes.append(f"metric.target: add `target: {target}` to `limits`.")
    return f"objective: {{metric: {quoted(str(name or 'loss'))}, goal: {quoted(goal)}}}"


def _search(root: Node, found: _Translation) -> Iterator[str]:
    """Yield the keys `search`, `scheduler` and `limits`."""
    yield line(
        f"search: {{algorithm: {ALGORITHMS.get(found.method, 'gp')}}}", f"method: {found.method}"
    )
    early = _child(root, "early_terminate")
    if early.is_map:
        values: dict[str, Any] = early.plain()
        brackets = values.get("s")
        most = values.get("max_iter")
        if most is None:
            found.notes.append(
                f"scheduler.max_t: {STEPS} is a guess: write the number of reports of a whole trial."
            )
        options = {
            "name": "hyperband" if isinstance(brackets, int) and brackets > 1 else "asha",
            "max_t": most or STEPS,
        }
        options |= {"grace_period": values["min_iter"]} if "min_iter" in values else {}
        options |= {"reduction_factor": values["eta"]} if "eta" in values else {}
        yield f"scheduler: {quoted(options)}"
    cap = _child(root, "run_cap").plain()
    if found.method != "grid" or cap:
        if cap is None:
            found.notes.append(
                f"limits.max_trials: {TRIALS} is a guess, because the sweep had no `run_cap`."
            )
        yield f"limits: {{max_trials: {quoted(cap or TRIALS)}}}"
