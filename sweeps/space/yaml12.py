"""Parse YAML 1.2 into a tree of nodes with lines and columns.

ruamel.yaml scans and parses. This module decides the value of a plain scalar by the core schema of YAML 1.2.2 (10.3.2): `1e-4` is a
number, and `no` is a word. The tree is built from events, so a file cannot create Python objects. Parsing stops as soon as a limit below
is exceeded.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from sweeps.core.errors import InputError, Problem
from sweeps.space.nodes import Mark, Node, scalar

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_NODES = 10_000  # each alias counts as a copy, so a bomb is found before it is expanded

# Characters that YAML 1.2 does not allow in a file (5.1). The byte order mark is removed earlier.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_text(path: Path, source: str) -> str:
    """Return the text of a file.

    Args:
        path: The file.
        source: Name of the file in a problem.

    Raises:
        InputError: The file does not exist, is not a regular file, is over 1 MB, is not UTF-8, or is binary.
    """

    def stop(text: str, line: int = 1, column: int = 1) -> InputError:
        return InputError(Problem(str(Mark(source, line, column)), text))

    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise stop("is a directory, not a space file")
        if not stat.S_ISREG(mode):  # a pipe or a device may never end
            raise stop("is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise stop("no such file") from None
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        raise stop(f"cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if len(data) > MAX_BYTES:
        raise stop("is larger than 1 MB, the limit of a space file")
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        before = data[: e.start].decode("utf-8")
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise stop("is UTF-16; save it as UTF-8") from None
        raise stop(f"is not UTF-8 text (byte 0x{data[e.start]:02x}); save it as UTF-8", *_line_column(before)) from None
    if bad := _UNPRINTABLE.search(text):
        what = f"the control character U+{ord(bad[0]):04X}"
        raise stop(f"contains {what}, which YAML does not allow; is this a text file?", *_line_column(text[: bad.start()]))
    return text


def _line_column(before: str) -> tuple[int, int]:
    """Return the line and the column, from 1, of the character that follows a text."""
    lines = re.split("\r\n|\r|\n", before)
    return len(lines), len(lines[-1]) + 1


def parse(text: str, source: str, override: bool = False) -> Node:
    """Parse one YAML document.

    Args:
        text: The text of a file, or the value of an override.
        source: Name of the file in a problem.
        override: True if the text is the value of a `--set`. Its nodes then have no lines, and an empty text is null.

    Raises:
        InputError: The text breaks a rule. The error has only the first problem.
    """
    return _Builder(source, override).build(text)


class _Stop(Exception):
    """Error that stops the parsing with one problem."""

    def __init__(self, mark: Mark, text: str):
        self.problem = Problem(str(mark), text)


@dataclass(slots=True)
class _Open:
    """A list or a mapping that has not ended yet."""

    node: Node
    anchor: str | None
    key: Any = None
    has_key: bool = False
    size: int = 1
    height: int = 1


class _Builder:
    """Builder of the tree, from ruamel's events. It does not recurse, so deep nesting becomes a problem instead of a crash."""

    def __init__(self, source: str, override: bool):
        self.source, self.override = source, override
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.total = 0
        self.anchors: dict[str, tuple[Node, int, int] | None] = {}  # node, size, height; None until the node ends

    def mark(self, at: Any) -> Mark:
        """Return the place of one of ruamel's marks."""
        return Mark(self.source) if self.override else Mark(self.source, at.line + 1, at.column + 1)

    def build(self, text: str) -> Node:
        """Parse a text, and return the root of its tree."""
        try:
            if bad := _UNPRINTABLE.search(text):
                raise _Stop(Mark(self.source), f"contains the control character U+{ord(bad[0]):04X}, which YAML does not allow")
            for event in YAML(typ="safe", pure=True).parse(text):
                self.take(event)
        except _Stop as e:
            raise InputError(e.problem) from None
        except MarkedYAMLError as e:
            at = e.problem_mark or e.context_mark
            where = self.mark(at) if at is not None else Mark(self.source, 1, 1)
            if at is not None and e.context_mark is not None and at.index >= len(text.rstrip()):
                where = self.mark(e.context_mark)  # the place of the open node, not the end of the file
                if "<stream end>" in str(e.problem) and self.stack:
                    where = self.stack[-1].node.mark
            raise InputError(Problem(str(where), _yaml_words(e))) from None
        except (YAMLError, ValueError, RecursionError) as e:
            where = Mark(self.source) if self.override else Mark(self.source, 1, 1)
            raise InputError(Problem(str(where), "not valid YAML: " + " ".join(str(e).split()))) from None
        if self.root is None:
            if self.override:
                return Node(None, Mark(self.source))
            raise InputError(
                Problem(str(Mark(self.source, 1, 1)), "the file is empty; a space file is a mapping with `trainer:`, `data:`, ...")
            )
        return self.root

    def take(self, event: Any) -> None:
        """Process one event."""
        if isinstance(event, DocumentStartEvent):
            if self.root is not None:
                raise _Stop(self.mark(event.start_mark), "a second document begins here; a space file is one document")
            if event.version and tuple(event.version) < (1, 2):
                raise _Stop(
                    self.mark(event.start_mark),
                    f"%YAML {'.'.join(map(str, event.version))}: a space file must be YAML 1.2; remove this line",
                )
        elif isinstance(event, AliasEvent):
            mark = self.mark(event.start_mark)
            if event.anchor not in self.anchors:
                raise _Stop(mark, f"`*{event.anchor}`: there is no anchor `&{event.anchor}` before this alias")
            known = self.anchors[event.anchor]
            if known is None:
                raise _Stop(mark, f"`*{event.anchor}` refers to a value that contains it")
            self.add(known[0], mark, known[1], known[2])
        elif isinstance(event, (ScalarEvent, SequenceStartEvent, MappingStartEvent)):
            mark = self.mark(event.start_mark)
            if event.tag is not None:
                raise _Stop(mark, f"tag `{_tag(event.tag)}`: a space file must be plain data without tags; remove the tag")
            if isinstance(event, ScalarEvent):
                self.scalar(event, mark)
                return
            if len(self.stack) >= MAX_DEPTH:
                raise _Stop(mark, f"the values are nested more than {MAX_DEPTH} levels deep, the limit")
            if event.anchor:
                self.anchors[event.anchor] = None
            self.stack.append(_Open(Node([] if isinstance(event, SequenceStartEvent) else {}, mark), event.anchor))
        elif isinstance(event, (SequenceEndEvent, MappingEndEvent)):
            done = self.stack.pop()
            if done.anchor:
                self.anchors[done.anchor] = (done.node, done.size, done.height)
            self.add(done.node, done.node.mark, done.size, done.height, counted=True)

    def scalar(self, event: Any, mark: Mark) -> None:
        """Add the node of a scalar."""
        text = event.value
        try:
            value = scalar(text) if event.implicit[0] else text
        except ValueError as e:
            raise _Stop(mark, str(e)) from None
        if isinstance(value, str) and _SURROGATE.search(value):
            raise _Stop(mark, "half a surrogate pair (`\\ud800` to `\\udfff`) is not a character")
        raw = text if event.implicit[0] else "'" + text.replace("'", "''") + "'"
        node = Node(value, mark, raw=raw)
        if event.anchor:
            self.anchors[event.anchor] = (node, 1, 0)
        self.add(node, mark, 1, 0)

    def add(self, node: Node, mark: Mark, size: int, height: int, counted: bool = False) -> None:
        """Add a finished node, of `size` values and `height` levels, to the open list or mapping."""
        if not counted:
            self.total += size
        if self.total > MAX_NODES:
            raise _Stop(mark, f"the file has more than {MAX_NODES} values, the limit; each alias counts as a copy of its value")
        if len(self.stack) + height > MAX_DEPTH:
            raise _Stop(mark, f"the values are nested more than {MAX_DEPTH} levels deep, the limit")
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        top.size += size
        top.height = max(top.height, height + 1)
        if isinstance(top.node.value, list):
            top.node.value.append(node)
        elif not top.has_key:
            if isinstance(node.value, (dict, list)):
                raise _Stop(mark, f"a key must be a name, got {node.show()}")
            if node.value == "<<" and node.raw == "<<":
                raise _Stop(mark, "merge keys (`<<`) are not YAML 1.2; write the keys out")
            if node.value in top.node.value:
                first = top.node.keys[node.value]
                raise _Stop(mark, f"duplicate key `{node.value}`" + (f"; it is already on line {first.line}" if first.line else ""))
            top.key, top.has_key = node.value, True
            top.node.keys[node.value] = mark
        else:
            top.node.value[top.key] = node
            top.has_key = False


def _tag(tag: Any) -> str:
    text = str(tag)
    return text.replace("tag:yaml.org,2002:", "!!")


def _yaml_words(e: MarkedYAMLError) -> str:
    """Return ruamel's message in one line. Common mistakes are described in plain words."""
    problem = " ".join(str(e.problem or e.context or "").split())
    context = " ".join(str(e.context or "").split())
    if "'\\t'" in problem:
        text = "a tab is not allowed as indentation or before a key or value; use spaces"
    elif "<stream end>" in problem or "end of stream" in problem:
        text = "a quote is not closed" if "quoted" in context else "a `[` or `{` is not closed"
    elif "<block end>" in problem:
        text = "the indentation is wrong, or a `- ` or a `key:` is missing"
    elif "mapping values are not allowed" in problem:
        text = "a `key:` is not allowed here; the indentation is wrong, or a text with `: ` needs quotes"
    else:
        text = f"{context}: {problem}" if context and context != problem else problem
    return f"not valid YAML: {text}"
