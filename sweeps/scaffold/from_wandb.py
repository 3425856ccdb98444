"""Translate the configuration of a W&B sweep into a space file. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sweeps.core.errors import InputError, Problem
from sweeps.scaffold.yaml_text import comment_lines, line, quoted, sweep_name
from sweeps.space.foreign_syntax import translate_mapping
from sweeps.space.nodes import Mark, Node
from sweeps.space.yaml_writer import flow

ALGORITHMS = {"grid": "grid", "random": "random", "bayes": "gp"}
DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
# Number of trials if the configuration has no `run_cap`, and largest step if `early_terminate`
# names none.
TRIALS, STEPS = 30, 100
# The keys of a parameter that define its values.
DISTRIBUTION = ("distribution", "value", "values", "min", "max", "q", "mu", "sigma")


class _Translation:
    """Collects the notes and the problems of a translation, and remembers which keys were read."""

    def __init__(self, source: str):
        self.source, self.method = source, ""
        self.notes: list[str] = []
        self.problems: list[Problem] = []
        self._read: set[int] = set()

    def get(self, node: Node, key: str) -> Node:
        """Return the value of a key, which counts as read.

        A node with the value None if the mapping has no such key.
        """
        child: Node = node.value.get(key, Node(None, node.mark))
        self._read.add(id(child))
        return child

    def section(self, node: Node, key: str) -> Node:
        """Return the mapping under a key; an empty mapping if there is none.

        Another value does not count as read.
        """
        child = node.value.get(key)
        return self.get(node, key) if child is not None and child.is_map else Node({}, node.mark)

    def unread(self, node: Node, path: str = "") -> Iterator[str]:
        """Yield the dotted path of each key that was not read."""
        for key, child in node.value.items():
            if id(child) not in self._read:
                yield f"{path}{key}"
            elif child.is_map:
                yield from self.unread(child, f"{path}{key}.")

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
    found = _Translation(source)
    given = found.section(root, "parameters") if root.is_map else root
    if not root.is_map or not given.value:
        raise InputError(source, "is not a W&B sweep: it has no mapping `parameters`")
    method = found.get(root, "method")
    found.method = str(method.plain() or "bayes")
    if found.method not in ALGORITHMS:
        found.problem(method.mark, "method", f"must be {', '.join(ALGORITHMS)}, got {found.method}")
    parameters = list(_parameters(given, found, 4))
    trainer = _trainer(root, found)
    rest = [_objective(root, found), *_search(root, found)]
    name = sweep_name(
        str(found.get(root, "name").value or source.rpartition("/")[2].partition(".")[0])
    )
    if unread := ", ".join(found.unread(root)):
        found.notes.append(f"These keys have no counterpart and were left out: {unread}.")
    if found.problems:
        raise InputError(found.problems)
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


def _parameters(node: Node, found: _Translation, indent: int) -> Iterator[str]:
    """Yield the lines of `space.params`."""
    for name in node.value:
        child = found.get(node, name)
        if child.is_map and (inner := found.section(child, "parameters")).value:
            yield line(f"{flow(str(name))}:", indent=indent)
            yield from _parameters(inner, found, indent + 2)
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
    """Return the domain of one parameter, or its constant value.

    Add a problem and return None if there is no counterpart.
    """
    given = {key: found.get(node, key) for key in DISTRIBUTION if key in node.value}
    kind = str(given["distribution"].value) if "distribution" in given else _implied(given)
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
    given["distribution"] = Node(kind, node.mark, raw=kind)
    hint = translate_mapping(Node(given, node.mark))
    written = re.fullmatch(r"write (\{\w+: \[[^]]*\]\})((?: \(.*\))?)", hint or "", re.S)
    if written is None:
        found.problem(
            node.mark,
            path,
            f"the distribution `{kind}` has no counterpart; {hint or 'write a domain of sweeps'}",
        )
        return None
    if written[2]:
        found.notes.append(f"{path}: the bounds are computed{written[2]}.")
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
    program = str(found.get(root, "program").value or "train.py")
    given = found.get(root, "command")
    command = given.plain() or list(DEFAULT_COMMAND)
    if not isinstance(command, list):
        found.problem(given.mark, "command", "must be a list")
        command = []
    words: list[str] = []
    for part in map(str, command):
        if part in ("${env}", "/usr/bin/env"):
            continue
        if part.startswith("${args"):
            if part != "${args}":
                found.notes.append(
                    f'`{part}` became "{{args}}", which passes `--NAME=VALUE` for each parameter: '
                    "adapt the script."
                )
            words.append("{args}")
        else:
            text = part.replace("${interpreter}", "python").replace("${program}", program)
            words.append(re.sub(r"\$\{envvar:(\w+)\}", r"${\1}", text))
    found.notes.append(
        "The script must print the metric as lines of JSON, or call sweeps.report: see "
        "docs/how-to/command.md."
    )
    return f"trainer: {{command: {flow(words)}}}"


def _objective(root: Node, found: _Translation) -> str:
    """Return the key `objective`."""
    metric = found.section(root, "metric")
    name = found.get(metric, "name").plain()
    goal = found.get(metric, "goal").plain() or "minimize"
    if name is None:
        found.notes.append(
            "The sweep had no metric: replace `loss` by the metric that the script reports."
        )
    if (target := found.get(metric, "target").value) is not None:
        found.notes.append(f"metric.target: add `target: {target}` to `limits`.")
    return f"objective: {{metric: {quoted(str(name or 'loss'))}, goal: {quoted(goal)}}}"


def _search(root: Node, found: _Translation) -> Iterator[str]:
    """Yield the keys `search`, `scheduler` and `limits`."""
    yield line(
        f"search: {{algorithm: {ALGORITHMS.get(found.method, 'gp')}}}", f"method: {found.method}"
    )
    early = found.section(root, "early_terminate")
    if early.value:
        keys = ("type", "s", "max_iter", "min_iter", "eta")
        values = {key: found.get(early, key).plain() for key in keys if key in early.value}
        brackets = values.get("s")
        most = values.get("max_iter")
        if most is None:
            found.notes.append(
                f"scheduler.max_t: {STEPS} is a guess: write the number of reports of a whole "
                "trial."
            )
        options = {
            "name": "hyperband" if isinstance(brackets, int) and brackets > 1 else "asha",
            "max_t": most or STEPS,
        }
        options |= {"grace_period": values["min_iter"]} if "min_iter" in values else {}
        options |= {"reduction_factor": values["eta"]} if "eta" in values else {}
        yield f"scheduler: {quoted(options)}"
    cap = found.get(root, "run_cap").plain()
    if found.method != "grid" or cap:
        if cap is None:
            found.notes.append(
                f"limits.max_trials: {TRIALS} is a guess, because the sweep had no `run_cap`."
            )
        yield f"limits: {{max_trials: {quoted(cap or TRIALS)}}}"
