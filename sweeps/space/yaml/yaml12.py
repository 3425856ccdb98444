"""Parse YAML 1.2 into a tree of nodes with lines and columns.

ruamel.yaml scans and parses the text. This module determines the value of each unquoted scalar with
the core schema of YAML 1.2.2 (10.3.2): `1e-4` is a number, and `no` is text, not a boolean. The
tree is built from ruamel's events, so a file cannot create Python objects. Parsing stops as soon as
the text exceeds one of the limits `MAX_DEPTH` and `MAX_NODES`.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError

from sweeps.core.errors import InputError
from sweeps.space.parse.nodes import Mark, Node

from .scalars import scalar

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
TOO_DEEP = f"the values are nested too deep; at most {MAX_DEPTH} levels are allowed"
# each alias counts as a copy, so a file with nested aliases is refused before the aliases are
# expanded
MAX_NODES = 10_000

# Characters that YAML 1.2 does not allow in a file (5.1). The byte order mark is removed earlier.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Maps parts of ruamel's messages to the text that the user sees instead.
_MISTAKES = {
    "'\\t'": "a tab is not allowed as indentation or before a key or value; use spaces",
    "<stream end>": "a `[` or `{` is not closed",
    "end of stream": "a quote is not closed",
    "<block end>": "the indentation is wrong, or a `- ` or a `key:` is missing",
    "mapping values are not allowed": "a `key:` is not allowed here; the indentation is wrong, or "
    "a text with `: ` needs quotes",
}


def _error(mark: Mark, text: str) -> InputError:
    """Return an error with one problem."""
    return InputError(str(mark), text)


def read_text(path: Path, source: str) -> str:
    """Return the text of a file.

    Args:
        path: The file.
        source: Name of the file for messages.

    Raises:
        InputError: The file does not exist, is not a regular file, is over 1 MB, or is not UTF-8.
    """
    start = Mark(source, 1, 1)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise _error(start, "must be a regular file, not a directory or a pipe")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _error(start, "no such file") from None
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        raise _error(start, f"cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if len(data) > MAX_BYTES:
        raise _error(start, "is too large; a space file may have at most 1 MB")
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        mark = _mark_after(data[: e.start].decode("utf-8"), source)
        raise _error(
            mark, f"is not UTF-8 text (byte 0x{data[e.start]:02x}); save it as UTF-8"
        ) from None


def _mark_after(before: str, source: str) -> Mark:
    """Return the place of the character that follows the text `before`.

    The text starts at the beginning of the file.
    """
    lines = re.split("\r\n|\r|\n", before)
    return Mark(source, len(lines), len(lines[-1]) + 1)


def parse(text: str, source: str, override: bool = False) -> Node:
    """Parse one YAML document.

    Args:
        text: The text of a file, or the value of an override.
        source: Name of the file or of the override for messages.
        override: True if the text is the value of a `--set`. The nodes then have no line numbers,
            and an empty text gives a null node.

    Raises:
        InputError: The text is not valid YAML 1.2, has something that space files must not have,
            such as a tag, or exceeds a limit. The error names the first problem only.
    """
    start = Mark(source) if override else Mark(source, 1, 1)
    if bad := _UNPRINTABLE.search(text):
        mark = start if override else _mark_after(text[: bad.start()], source)
        raise _error(
            mark,
            f"contains the control character U+{ord(bad[0]):04X}, which YAML does not allow; is "
            "this a text file?",
        )
    builder = _Builder(text, source, override)
    try:
        root = builder.build()
    except MarkedYAMLError as e:
        raise _error(builder.place(e, len(text.rstrip())) or start, _explain(e)) from None
    except (YAMLError, ValueError, RecursionError) as e:
        raise _error(start, "not valid YAML: " + " ".join(str(e).split())) from None
    if root is None and not override:
        raise _error(
            start, "the file is empty; a space file is a mapping with `trainer:`, `data:`, ..."
        )
    return root or Node(None, start)


class _Builder:
    """Builder of the tree from ruamel's events.

    The builder recurses at most `MAX_DEPTH` levels deep.
    """

    def __init__(self, text: str, source: str, override: bool):
        self.source = source
        self.override = override
        self.events = iter(YAML(typ="safe", pure=True).parse(text))
        self.open: list[Mark] = []  # places of the lists and mappings that are not yet complete
        self.total = 0
        # Node of each anchor; None until the node is complete.
        self.anchors: dict[str, Node | None] = {}

    def mark(self, at: StreamMark) -> Mark:
        """Convert one of ruamel's marks into a `Mark`.

        For an override, the result has no line and column.
        """
        return Mark(self.source) if self.override else Mark(self.source, at.line + 1, at.column + 1)

    def place(self, e: MarkedYAMLError, end: int) -> Mark | None:
        """Return the place of an error.

        If the error is at the end of the text, the place is where the unfinished node begins.

        `end` is the index of the end of the text.
        """
        at = e.problem_mark or e.context_mark
        if at is None:
            return None
        if e.context_mark is None or at.index < end:
            return self.mark(at)
        # The error is at the end. ruamel's context is the node that it was reading.
        if "<stream end>" in str(e.problem) and self.open:
            return self.open[-1]
        return self.mark(e.context_mark)

    def build(self) -> Node | None:
        """Return the root of the tree. None if the text has no document."""
        root = None
        for event in self.events:
            if isinstance(event, events.DocumentStartEvent):
                if root is not None:
                    raise _error(
                        self.mark(event.start_mark),
                        "a second document begins here; a space file must be one document",
                    )
                if event.version and tuple(event.version) < (1, 2):
                    version = ".".join(map(str, event.version))
                    raise _error(
                        self.mark(event.start_mark),
                        f"%YAML {version}: a space file must be YAML 1.2; remove this line",
                    )
            elif isinstance(event, events.NodeEvent):
                root = self._node(event)
        return root

    def _node(self, event: Any) -> Node:
        """Return the node that begins with an event."""
        mark = self.mark(event.start_mark)
        if isinstance(event, events.AliasEvent):
            return self._alias(event.anchor, mark)
        if event.tag is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            raise _error(
                mark, f"tag `{tag}`: a space file must be plain data without tags; remove the tag"
            )
        is_scalar = isinstance(event, events.ScalarEvent)
        self._count(mark, size=1, height=0 if is_scalar else 1)
        if event.anchor:
            self.anchors[event.anchor] = None
        if is_scalar:
            node = _scalar_node(event, mark)
        else:
            self.open.append(mark)
            is_map = isinstance(event, events.MappingStartEvent)
            node = self._mapping(mark) if is_map else self._list(mark)
            self.open.pop()
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _count(self, mark: Mark, size: int, height: int) -> None:
        """Add the number of values in a node to the total for the file.

        Raise an error if the total or the nesting depth exceeds its limit.

        Args:
            mark: Place of the node.
            size: Number of values in the node.
            height: Number of levels of lists and mappings in the node.
        """
        self.total += size
        if self.total > MAX_NODES:
            text = f"at most {MAX_NODES} are allowed, and each alias counts as a copy of its value"
            raise _error(mark, f"the file has too many values; {text}")
        if len(self.open) + height > MAX_DEPTH:
            raise _error(mark, TOO_DEEP)

    def _alias(self, anchor: str, mark: Mark) -> Node:
        """Return the node that an alias stands for."""
        if anchor not in self.anchors:
            raise _error(mark, f"`*{anchor}`: there is no anchor `&{anchor}` before this alias")
        if (node := self.anchors[anchor]) is None:
            raise _error(mark, f"`*{anchor}` refers to a value that contains it")
        self._count(mark, *_size_and_height(node))
        return node

    def _list(self, mark: Mark) -> Node:
        """Return the node of a list. The list's start event was already read."""
        items = []
        while not isinstance(event := next(self.events), events.SequenceEndEvent):
            items.append(self._node(event))
        return Node(items, mark)

    def _mapping(self, mark: Mark) -> Node:
        """Return the node of a mapping. The mapping's start event was already read."""
        mapping = Node({}, mark)
        while not isinstance(event := next(self.events), events.MappingEndEvent):
            key = self._node(event)
            at = self.mark(event.start_mark)
            if key.is_map or key.is_list:
                raise _error(at, f"a key must be a name, got {key.show()}")
            if key.raw == "<<":
                raise _error(
                    at, "merge keys (`<<`) are not part of YAML 1.2; write the keys without `<<`"
                )
            if key.value in mapping.value:
                line = mapping.value[key.value].at.line
                raise _error(
                    at,
                    f"duplicate key `{key.value}`"
                    + (f"; the key is already on line {line}" if line else ""),
                )
            mapping.value[key.value] = replace(self._node(next(self.events)), key_mark=at)
        return mapping


def _size_and_height(node: Node) -> tuple[int, int]:
    """Return the number of values in a tree, and its number of levels of lists and mappings."""
    if not node.is_map and not node.is_list:
        return 1, 0
    inside = [_size_and_height(child) for _, child in node.items()]
    return 1 + sum(size for size, _ in inside), 1 + max((height for _, height in inside), default=0)


def _scalar_node(event: events.ScalarEvent, mark: Mark) -> Node:
    """Return the node of a scalar. Only a scalar without quotes may be something else than text."""
    text = event.value
    is_plain = event.implicit[0]
    try:
        value = scalar(text) if is_plain else text
    except ValueError as e:
        raise _error(mark, str(e)) from None
    if isinstance(value, str) and _SURROGATE.search(value):
        raise _error(mark, "half a surrogate pair (`\\ud800` to `\\udfff`) is not a character")
    return Node(value, mark, raw=text if is_plain else "'" + text.replace("'", "''") + "'")


def _explain(e: MarkedYAMLError) -> str:
    """Return ruamel's message in one line. Common mistakes are described in plain words."""
    problem = " ".join(str(e.problem or e.context or "").split())
    context = " ".join(str(e.context or "").split())
    text = f"{context}: {problem}" if context and context != problem else problem
    for part, explanation in _MISTAKES.items():
        if part in problem:
            text = explanation
            break
    return f"not valid YAML: {text}"
