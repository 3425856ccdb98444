"""Collect all problems of a space file, and turn pydantic's errors into problems."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from sweeps.core.errors import Problem
from sweeps.core.parameter_schema import Fragment, rule_of
from sweeps.space.domains import DOMAINS
from sweeps.space.nodes import Mark, Node
from sweeps.space.parameter_checks import mismatch
from sweeps.space.section_models import REQUIRED
from sweeps.space.synonyms import our_name, suggest

T = TypeVar("T")


class Problems:
    """Collects the problems of one space file. All problems can then be reported together."""

    def __init__(self) -> None:
        self._found: dict[
            tuple[int, int, str, str], Problem
        ] = {}  # the key removes repetitions and sorts by place

    def add(self, mark: Mark, key: str, text: str) -> None:
        """Add a problem.

        Args:
            mark: Place in the file.
            key: Dotted key of the value with the problem. "" for a problem of the whole file or of
                an override.
            text: The message: the value, the rule, and the next thing to try.
        """
        place, key = place_and_key(mark.key_path, key) if mark.key_path else (str(mark), key)
        line = " ".join(f"{key}: {text}".split()) if key else " ".join(text.split())
        # overrides have no line; their problems are sorted after the problems of the file
        self._found[(mark.line or 10**9, mark.column, place, line)] = Problem(place, line)

    def extend(self, problems: tuple[Problem, ...]) -> None:
        """Add problems that already have a place.

        The problems of a file that is not YAML are an example.
        """
        for i, problem in enumerate(problems):
            self._found[(0, i, problem.place, problem.text)] = problem

    def __len__(self) -> int:
        return len(self._found)

    def sorted(self) -> list[Problem]:
        """Return all problems, ordered by place. Problems of overrides come last."""
        return [self._found[key] for key in sorted(self._found)]


def place_and_key(key_path: str, key: str) -> tuple[str, str]:
    """Return the place of a problem in a script's dict, and the key that the message must name.

    The key is "" if the place already names it.

    Args:
        key_path: Key path of the value with the problem. If this value is missing, the key path of
            the section.
        key: Key of the value, for messages about a space file.

    >>> place_and_key("space.params.eta.uniform", "params.eta")
    ('space.params.eta.uniform', '')
    >>> place_and_key("objective", "objective.metric")
    ('objective.metric', '')
    """
    if key_path.removeprefix("space.").startswith(key) or key_path.startswith(key):
        return key_path, ""
    return (
        (key, "")
        if key.startswith(key_path.removeprefix("space.")) or key_path == "space"
        else (key_path, key)
    )


@dataclasses.dataclass(frozen=True)
class SpaceFile:
    """A parsed space file and the problems that were found in it.

    Attributes:
        root: Root of the tree of nodes.
        problems: Collects the problems.
    """

    root: Node
    problems: Problems

    def at(self, section: str) -> Mark:
        """Return the place of a section's key. For an absent section, it is the file's start."""
        return self.root.keys.get(section, self.root.mark._replace(line=1, column=1))

    def node(self, section: str) -> Node:
        """Return the node of a section. For an absent section, its value is None."""
        return self.root.value.get(section) or Node(None, self.at(section))

    def wrong(self, path: str, text: str) -> None:
        """Add a problem.

        Args:
            path: A section, or the dotted path of a value in a section. If the file does not have
                this value, the message shows the place of the section's key.
            text: The message: the value, the rule, and the next thing to try.
        """
        section, *parts = path.split(".")
        mark, node = self.at(section), self.node(section)
        for part in parts:
            inside = (
                {str(i): child for i, child in enumerate(node.value)}
                if node.is_list
                else node.value
                if node.is_map
                else {}
            )
            node = inside.get(part, Node(None, self.at(section)))
            mark = node.mark
        self.problems.add(mark, path, text)


@functools.cache
def adapter(model: type) -> TypeAdapter[Any]:
    """Return pydantic's validator of a dataclass.

    The validator refuses a key for which the dataclass has no field.
    """
    # The configuration is the same for every section, so the models do not repeat it.
    model.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(model)


@functools.cache
def fragments(model: type) -> Mapping[str, Fragment]:
    """Return the JSON Schema of each field of a dataclass, by name.

    The type null is left out, because null stands for an absent key.
    """
    by_name: dict[str, Fragment] = {}
    for name, fragment in adapter(model).json_schema().get("properties", {}).items():
        forms = [form for form in fragment.pop("anyOf", ()) if form != {"type": "null"}]
        outside = {key: value for key, value in fragment.items() if key != "title"}
        by_name[name] = outside | (
            forms[0] if len(forms) == 1 else {"anyOf": forms} if forms else {}
        )
    return by_name


@functools.cache
def key_names(model: Any) -> tuple[str, ...]:
    """Return the keys of a section: the names of the fields of its dataclass, or their aliases.

    An example is `from`.
    """
    hints = typing.get_type_hints(model, include_extras=True)
    parts = {f.name: getattr(hints[f.name], "__metadata__", ()) for f in dataclasses.fields(model)}
    return tuple(
        next((alias for part in found if (alias := getattr(part, "alias", None))), name)
        for name, found in parts.items()
    )


def check(model: type[T], node: Node, path: str, at: Mark, problems: Problems) -> T | None:
    """Validate a section, and return an instance of its dataclass.

    Return None if the section has a problem.

    Args:
        model: The dataclass of the section.
        node: The section. A null section is treated as an empty mapping, and a known key with the
            value null is treated as absent.
        path: Dotted key of the section.
        at: Place of the section's key. Problems with missing keys get this place.
        problems: Collects the problems.
    """
    names = key_names(model)  # type: ignore[arg-type]
    before = len(problems)
    tuned = report_domains(node, path, problems)
    if not node.is_map and node.value is not None:
        problems.add(
            node.mark, path, f"must be a mapping with keys {', '.join(names)}, got {node.show()}"
        )
        return None
    if () in tuned:
        return None
    given: dict[str, Any] = {}
    for key, child in (node.value or {}).items():
        if key not in names:
            problems.add(
                node.keys[key],
                f"{path}.{key}",
                f"unknown key; {suggest(path.split('.')[0], key, names)}",
            )
        elif child.value is not None:
            given[key] = child.plain()
    try:
        validated: T = adapter(cast(Any, model)).validate_python(given)
    except ValidationError as e:
        for error in e.errors(include_url=False):
            key = str(error["loc"][0])
            if error["type"] == "missing":
                needed = (
                    REQUIRED.get((model, key))
                    or f"set {key} to "
                    f"{fragments(cast(Any, model))[key].get('description', 'a value')}"
                )
                problems.add(at, f"{path}.{key}", f"is required; {needed}")
            elif not any(place[0] == key for place in tuned):  # a domain has its own problem
                _add_error(model, error, node, path, problems)
        return None
    return validated if len(problems) == before else None


def _add_error(model: type, error: Any, node: Node, path: str, problems: Problems) -> None:
    """Add a problem for one of pydantic's errors about a value."""
    key, *steps = error["loc"]
    where, child, fragment = f"{path}.{key}", node.value[key], fragments(model)[key]
    for step in steps:
        if child.is_list and isinstance(step, int):
            where, child, fragment = f"{where}.{step}", child.value[step], fragment["items"]
    if error["type"] == "value_error":
        text = f"{error['ctx']['error']}, got {child.show()}"
    elif error["type"] == "string_too_short":
        text = "must not be empty"
    elif "enum" in fragment:
        text = wrong_name(f"{path.split('.')[0]}.{key}", child, fragment["enum"])
    else:
        text = mismatch(fragment, child, tunable=False)
    problems.add(child.mark, where, text)


def wrong_name(place: str, node: Node, valid: Iterable[str]) -> str:
    """Return the message about a word that is not one of the valid words.

    Args:
        place: Dotted key of the word, such as `objective.goal`. If `synonyms.SUGGESTIONS` has an
            entry for this key, and the user wrote the name that another tool uses, the message
            suggests the name that sweeps uses.
        node: The word in the space file.
        valid: The valid words.
    """
    hint = suggest(place, node.value, valid)
    hint = f"; {hint}" if hint.startswith("did") or our_name(place, node.value) else ""
    return f"must be {rule_of({'enum': list(valid)})}, got {node.show()}{hint}"


def report_domains(node: Node, path: str, problems: Problems) -> set[tuple[Any, ...]]:
    """Add a problem for every domain in a part of the space file whose values must be constants.

    An example is the section `limits`.

    Args:
        node: The section, or a value in it.
        path: Dotted key of the node.
        problems: Collects the problems.

    Returns:
        The paths of the domains, relative to the node. The path `()` means that the node itself is
        a domain.
    """
    paths: set[tuple[Any, ...]] = set()

    def walk(at: Node, parts: tuple[Any, ...]) -> None:
        names = [key for key in at.value if key != "when"] if at.is_map else []
        if len(names) == 1 and (kind := names[0]) in DOMAINS:
            where = ".".join((path, *map(str, parts)))
            section = path.split(".")[0]
            rule = (
                "only train, drop and rows of data can be tuned"
                if section == "data"
                else "only values under `space:` can be tuned"
            )
            problems.add(at.keys[kind], where, f"cannot be tuned (`{kind}`); {rule}")
            paths.add(parts)
            return
        children = at.value.items() if at.is_map else enumerate(at.value) if at.is_list else ()
        for key, child in children:
            walk(child, (*parts, key))

    walk(node, ())
    return paths
