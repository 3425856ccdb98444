"""Ways to damage a file of a sweep's folder, and a check that a reader writes nothing outside the
folder.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

DEEP = '{"a":' * 200_000
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = (
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
)
_watch: dict[str, Any] = {"inside": None, "seen": []}

texts = st.sampled_from(
    [
        "",
        "x",
        "0000",
        "0002",
        "\0",
        "\ud800",
        "../..",
        "/etc/passwd",
        "a" * 5000,
        "1e999",
        "é\u202e\x1b[2J",
        "events.1",
        "NaN",
    ]
)
numbers = st.sampled_from(
    [
        0,
        1,
        -1,
        2,
        7,
        4711,
        2**63,
        10**400,
        0.5,
        -0.0,
        1e308,
        float("nan"),
        float("inf"),
        -float("inf"),
    ]
)
plain = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.one_of(plain, st.lists(plain, max_size=3), st.dictionaries(texts, plain, max_size=3))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of a JSON value and of every value inside it."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path] + [place for key, own in inner for place in places(own, (*path, key))]


def changed(value: Any, data: st.DataObject) -> Any:
    """Return a copy of a JSON value in which one value is replaced, removed or added."""
    value = copy.deepcopy(value)
    path = data.draw(st.sampled_from(places(value)), label="path")
    new = data.draw(values, label="value")
    if not path:
        return new
    at = value
    for key in path[:-1]:
        at = at[key]
    how = data.draw(st.sampled_from(["replace", "remove", "add"]), label="how")
    if how == "remove":
        del at[path[-1]]
    elif how == "add" and isinstance(at, dict):
        at[data.draw(texts, label="key")] = new
    else:
        at[path[-1]] = new
    return value


def damaged(text: bytes, data: st.DataObject) -> bytes:
    """Return the content of a file in which some bytes are replaced or missing."""
    how = data.draw(
        st.sampled_from(["cut", "byte", "nothing", "deep", "zeros", "encoding", "twice"]),
        label="bytes",
    )
    at = data.draw(st.integers(0, len(text)), label="at")
    end = data.draw(st.sampled_from([at, at + 1, at + 7, at + 4000]), label="end")
    ways = {
        "cut": text[:at],
        "nothing": b"",
        "deep": DEEP.encode(),
        "zeros": text[:at] + b"\0" * (end - at) + text[end:],
        "twice": text + text,
    }
    ways |= {
        "encoding": text.decode(errors="replace").encode("utf-16"),
        "byte": text[:at] + bytes([data.draw(st.integers(0, 255))]) + text[end:],
    }
    return ways[how]


def damaged_json(text: bytes, data: st.DataObject) -> bytes:
    """Damage the values or the bytes of a JSON file."""
    if data.draw(st.booleans(), label="in its values"):
        value = json.loads(text)
        for _ in range(data.draw(st.integers(1, 3), label="times")):
            value = changed(value, data)
        return json.dumps(value).encode(errors="surrogatepass")
    return damaged(text, data)


def damaged_journal(text: bytes, data: st.DataObject) -> bytes:
    """Return a journal in which some lines are damaged, moved or lost."""
    lines = text.split(b"\n")[:-1]
    for _ in range(data.draw(st.integers(1, 4), label="lines")):
        at = data.draw(st.integers(0, len(lines) - 1), label="line")
        how = data.draw(
            st.sampled_from(["value", "value", "value", "bytes", "lose", "double", "move"]),
            label="how",
        )
        if how == "value":
            with contextlib.suppress(ValueError):
                lines[at] = json.dumps(changed(json.loads(lines[at]), data)).encode()
        elif how == "bytes":
            lines[at] = damaged(lines[at], data)
        elif how == "lose" and len(lines) > 1:
            del lines[at]
        else:
            lines.insert(
                data.draw(st.integers(0, len(lines)), label="to"),
                lines[at] if how == "double" else lines.pop(at),
            )
    return b"".join(line + b"\n" for line in lines)


@contextlib.contextmanager
def touching_nothing_outside(folder: Path) -> Iterator[None]:
    """Fail if this process writes, renames or removes a file outside the folder."""
    _watch["inside"], _watch["seen"] = os.path.realpath(folder), []
    try:
        yield
    finally:
        _watch["inside"] = None
    assert not _watch["seen"], _watch["seen"]


def _look(event: str, args: tuple[Any, ...]) -> None:
    inside = _watch["inside"]
    if inside is None or not (event == "open" or event in CHANGES):
        return
    if event == "open" and (not isinstance(args[0], (str, bytes)) or not (args[2] or 0) & WRITES):
        return
    for path in args[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
        if not isinstance(path, (str, bytes)) or not path:
            continue
        follows = event == "open" and not args[2] & os.O_NOFOLLOW
        real = (os.path.realpath if follows else os.path.abspath)(os.fsdecode(path))
        if (
            not (real + "/").startswith(inside + "/")
            and real != os.devnull
            and "__pycache__" not in real
        ):
            _watch["seen"].append((event, real))


sys.addaudithook(_look)
