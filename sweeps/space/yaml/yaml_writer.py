"""Write values as YAML 1.2, so that `yaml12.parse` reads the same values again. Pure functions."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from sweeps.space.model.domains import domain_kind
from sweeps.space.parse.nodes import Mark, Node

from .scalars import Plain, Scalar, scalar

_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./-]*\Z")
# A value that contains no domain is written in one line if the line has at most this many
# characters.
WIDTH = 100


def block(value: Plain) -> str:
    """Return a value as a YAML document. A mapping that contains domains has one line for each key.

    >>> space = {"params": {"eta": {"loguniform": [0.0001, 1]}}}
    >>> print(block({"data": {"label": "y"}, "space": space}), end="")
    data: {label: y}
    space:
      params:
        eta: {loguniform: [0.0001, 1]}
    """
    if not isinstance(value, Mapping) or not value:
        return flow(value) + "\n"
    return "".join(f"{line}\n" for line in _lines(value, 0))


def flow(value: Plain) -> str:
    """Return a value as YAML in one line.

    A text gets quotes if YAML would read it as something else.

    >>> flow("size"), flow("%d/%m/%Y"), flow("8"), flow(0.001), flow([True, None, "a b"])
    ('size', '"%d/%m/%Y"', '"8"', '0.001', '[true, null, "a b"]')
    """
    if isinstance(value, str):
        if _PLAIN.match(value) and scalar(value) == value:
            return value
        text = json.dumps(value, ensure_ascii=False)  # a text of JSON is one of YAML, too
        # YAML would fold a line separator.
        return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(flow, value)) + "]"
    return str(value)


def node_of(value: Plain, place: Callable[[str], Mark], path: str = "") -> Node:
    """Return plain values as a tree of nodes.

    Args:
        value: The value.
        place: Function that returns the place of a value, given its dotted path.
        path: Dotted path of the value.
    """

    def inside(key: Scalar, child: Plain) -> Node:
        return node_of(child, place, f"{path}.{key}" if path else str(key))

    mark = place(path)
    if isinstance(value, Mapping):
        return Node({key: inside(key, child) for key, child in value.items()}, mark)
    if isinstance(value, (list, tuple)):
        return Node([inside(i, child) for i, child in enumerate(value)], mark)
    raw = flow(value)
    if isinstance(value, str) and raw != value:
        # A raw text in quotes has single quotes; see `Node.raw`.
        raw = "'" + value.replace("'", "''") + "'"
    return Node(value, mark, raw=raw)


def number(value: float) -> str:
    """Return a float as YAML, which reads the same float.

    >>> number(0.1), number(1e-05), number(3.0), number(float("inf"))
    ('0.1', '1e-05', '3.0', '.inf')
    """
    text = repr(float(value))
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)


def _lines(mapping: Mapping[Scalar, Plain], indent: int) -> Iterator[str]:
    """Yield the lines of a mapping in YAML's block style."""
    for key, value in mapping.items():
        head = " " * indent + flow(key) + ":"
        line = f"{head} {flow(value)}"
        is_short = len(line) <= WIDTH and not _has_domain(value)
        if isinstance(value, Mapping) and value and not domain_kind(value) and not is_short:
            yield head
            yield from _lines(value, indent + 2)
        else:
            yield line


def _has_domain(value: Plain) -> bool:
    """Return True if a value is a domain or contains one."""
    if isinstance(value, Mapping):
        return bool(domain_kind(value)) or any(map(_has_domain, value.values()))
    return (
        isinstance(value, Sequence) and not isinstance(value, str) and any(map(_has_domain, value))
    )
