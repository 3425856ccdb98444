"""Collect all problems of a space file, and turn pydantic's errors about a section into problems."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from sweeps.core.errors import Problem
from sweeps.space.domains import DOMAINS
from sweeps.space.nodes import Mark, Node, meant
from sweeps.space.section_models import REQUIRED
from sweeps.space.synonyms import known, suggest

T = TypeVar("T")


class Problems:
    """The problems of one space file, which are reported together."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, str, str], Problem] = {}  # the key removes repetitions and sorts by place

    def add(self, mark: Mark, key: str, text: str) -> None:
        """Add a problem.

        Args:
            mark: Place in the file.
            key: Dotted key, or "".
            text: The value, the rule, and the next thing to try.
        """
        line = " ".join(f"{key}: {text}".split()) if key else " ".join(text.split())
        # overrides have no line; they are sorted behind the file
        self._found[(mark.line or 10**9, mark.column, str(mark), line)] = Problem(str(mark), line)

    def extend(self, problems: tuple[Problem, ...]) -> None:
        """Add problems that already have a place, such as the problems of a file that is not YAML."""
        for i, problem in enumerate(problems):
            self._found[(0, i, problem.place, problem.text)] = problem

    def __len__(self) -> int:
        return len(self._found)

    def sorted(self) -> list[Problem]:
        """Return all problems, ordered by place. Problems of overrides come last."""
        return [self._found[key] for key in sorted(self._found)]


@functools.cache
def _adapter(model: type) -> TypeAdapter[Any]:
    # The configuration is the same for every section, so the models do not repeat it.
    model.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(model)


def check(model: type[T], node: Node, path: str, at: Mark, problems: Problems, required: Callable[[str], str] | None = None) -> T | None:
    """Validate a section, and return an instance of its dataclass. Return None after a problem.

    Args:
        model: The dataclass of the section.
        node: The section. Null means an empty mapping; null under a known key means that the key is absent.
        path: Dotted key of the section.
        at: Place of the section's key, where missing keys are reported.
        problems: Collects the problems.
        required: Returns the message about a required key that is absent.
    """
    names = [f.name for f in dataclasses.fields(model)]  # type: ignore[arg-type]
    before = len(problems)
    tuned = report_domains(node, path, problems)
    if not node.is_map and node.value is not None:
        problems.add(node.mark, path, f"must be a mapping with keys {', '.join(names)}, got {node.show()}")
        return None
    if () in tuned:
        return None
    given: dict[str, Any] = {}
    for key, child in (node.value or {}).items():
        if key not in names:
            problems.add(node.keys[key], f"{path}.{key}", f"unknown key; {suggest(path.split('.')[0], key, names)}")
        elif child.value is not None:
            given[key] = child.plain()
    try:
        found: T = _adapter(cast(Any, model)).validate_python(given)
    except ValidationError as e:
        for error in e.errors(include_url=False):
            if error["type"] == "missing" and required is not None:
                key = str(error["loc"][0])
                problems.add(at, f"{path}.{key}", required(key))
                continue
            _tell(model, error, node, path, at, tuned, problems)
        return None
    return found if len(problems) == before else None


def _tell(model: type, error: Any, node: Node, path: str, at: Mark, tuned: set[tuple[Any, ...]], problems: Problems) -> None:
    """Add a problem for one of pydantic's errors."""
    key = str(error["loc"][0])
    where = f"{path}.{key}"
    if error["type"] == "missing":
        problems.add(at, where, "is required" + REQUIRED.get((model, key), ""))
        return
    if any(place and place[0] == key for place in tuned):
        return  # the domain is reported already
    child, ctx = node.value[key], error.get("ctx", {})
    for step in error["loc"][1:]:  # find the item of a list
        if child.is_list and isinstance(step, int):
            child, where = child.value[step], f"{where}.{step}"
    got = f"got {child.show()}"
    kind = error["type"]
    if kind == "literal_error":
        valid = re.findall(r"'([^']*)'", ctx["expected"])
        place = f"{path.split('.')[0]}.{key}"
        hint = suggest(place, child.value, valid)
        hint = f"; {hint}" if hint.startswith("did") or known(place, child.value) else ""
        text = f"must be {', '.join(valid[:-1])} or {valid[-1]}, {got}{hint}"
    elif kind in ("float_type", "finite_number"):
        text = f"must be a number, {got}"
    elif kind.startswith("int_"):
        text = f"must be an integer, {got}{meant(child.value)}"
    elif kind == "greater_than_equal":
        text = f"must be at least {ctx['ge']}, {got}"
    elif kind == "greater_than":
        text = f"must be above {ctx['gt']:g}, {got}"
    elif kind == "less_than_equal":
        text = f"must be at most {ctx['le']:g}, {got}"
    elif kind == "less_than":
        text = f"must be below {ctx['lt']}, {got}"
    elif kind.startswith("bool_"):
        text = f"must be true or false, {got}{meant(child.value, boolean=True)}"
    elif kind == "string_type":
        text = f"must be text, {got}" + ("" if child.is_map or child.is_list else "; quote it")
    elif kind == "tuple_type":
        text = f"must be a list, {got}"
    elif kind == "string_too_short":
        text = "must not be empty"
    else:
        text = f"{ctx['error'] if kind == 'value_error' else error['msg']}, {got}"
    if where in ("data.train", "data.rows") and child.is_list and child.value:
        text += f"; to try each, write {{choice: {child.show()}}}"
    problems.add(child.mark, where, text)


def report_domains(node: Node, path: str, problems: Problems) -> set[tuple[Any, ...]]:
    """Add a problem for every domain in a section that cannot be tuned.

    Args:
        node: The section, or a value in it.
        path: Dotted key of the node.
        problems: Collects the problems.

    Returns:
        The paths of the domains, relative to the node.
    """
    found: set[tuple[Any, ...]] = set()

    def walk(at: Node, way: tuple[Any, ...]) -> None:
        names = [key for key in at.value if key != "when"] if at.is_map else []
        if len(names) == 1 and (kind := names[0]) in DOMAINS:
            where = ".".join((path, *map(str, way)))
            section = path.split(".")[0]
            rule = "only train, drop and rows of data can" if section == "data" else "only values under `space:` can"
            problems.add(at.keys[kind], where, f"cannot be tuned (`{kind}`); {rule}")
            found.add(way)
            return
        children = at.value.items() if at.is_map else enumerate(at.value) if at.is_list else ()
        for key, child in children:
            walk(child, (*way, key))

    walk(node, ())
    return found
