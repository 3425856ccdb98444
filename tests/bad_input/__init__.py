"""Table of bad input and its answers.

`tests/test_bad_input.py` checks it, and `docs/bad_input.md` shows it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.core.plugins import plugin_registry

Content = str | bytes | Callable[[], bytes]

# The space file that each case changes in one place, one key a line, and the rows that it names.
BASE = {
    "trainer": "xgboost",
    "data": "{train: rows.csv, label: y, valid: 0.25}",
    "objective": "{metric: valid-logloss, goal: minimize}",
    "limits": "{max_trials: 4}",
    "space": "{params: {eta: {loguniform: [1e-3, 0.3]}}, preprocessor: [OneHotEncoder]}",
}
ROWS = "age,plan,y\n" + "".join(
    f"{i},{'ab'[i % 2]},{('no', 'yes')[i // 2 % 2]}\n" for i in range(8)
)
# A module that creates a file when it is imported.
MARKS = (
    "open('imported', 'w')\n\n\ndef train(config): ...\n"
    "def load(folder): ...\ndef rows(): ...\ndef clip(frame): ...\n"
)


def furnish(folder: Path) -> None:
    """Create the files that every case has: an empty folder, a pipe and a module."""
    (folder / "folder").mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (folder / "marks.py").write_text(MARKS)


@dataclass(frozen=True)
class Case:
    """One bad input.

    Attributes:
        name: The mistake, in a few words.
        shown: The input as the page shows it.
        answer: Lines of the answer.
        text: Content of `space.yaml`.
        files: Content of other files, by name. A function returns a content that must be computed.
        verbs: Commands that all give this answer.
        args: Arguments of the command.
        sound: True if the space file itself is valid, so that `validate` finds no problem.
    """

    name: str
    shown: str
    answer: tuple[str, ...]
    text: str | bytes
    files: Mapping[str, Content] = field(default_factory=dict)
    verbs: tuple[str, ...] = ("validate", "run")
    args: tuple[str, ...] = ("space.yaml",)
    sound: bool = False

    def write(self, folder: Path) -> None:
        """Write the files of the case."""
        for name, content in {"rows.csv": ROWS, "space.yaml": self.text, **self.files}.items():
            data = content() if callable(content) else content
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def names_of(kind: str, *before: str) -> str:
    """Return the names of the built-in plug-ins of a kind, after other names, as a message lists
    them: `a, b or c`.
    """
    *most, last = (*before, *plugin_registry.names(kind))
    return f"{', '.join(most)} or {last}"


def top(**changes: str | None) -> str:
    """Return the space file with some keys changed, added at the end, or left out."""
    return "".join(
        f"{key}: {value}\n" for key, value in (BASE | changes).items() if value is not None
    )


def answered(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Add the file's name to each answer that begins with a line and a column."""
    return tuple(f"space.yaml:{line}" if line[:1].isdigit() else line for line in lines)


def line(name: str, text: str, *answer: str) -> Case:
    """Return a case that changes one line of the file."""
    key, _, value = text.partition(": ")
    return Case(name, text, answered(answer), top(**{key: value}))


def params(name: str, text: str, *answer: str) -> Case:
    """Return a case with other parameters."""
    return line(name, f"space: {{params: {{{text}}}}}", *answer)


def without(name: str, key: str, *answer: str) -> Case:
    """Return a case that leaves out one line of the file."""
    return Case(name, f"no `{key}:`", answered(answer), top(**{key: None}))


def whole(name: str, shown: str, text: str | bytes, *answer: str) -> Case:
    """Return a case with another space file."""
    return Case(name, shown, answered(answer), text)


def typed(name: str, verbs: str, args: list[str], *answer: str) -> Case:
    """Return a case with other arguments, the same for each verb."""
    words = [f"'{word}'" if " " in word else word for word in args]
    return Case(
        name,
        " ".join(["sweeps", verbs.split()[0], *words]),
        answered(answer),
        top(),
        verbs=tuple(verbs.split()),
        args=tuple(args),
    )


def data(name: str, text: str, *answer: str, files: Mapping[str, Content] | None = None) -> Case:
    """Return a case with another `data` section."""
    return Case(
        name, f"data: {text}", answered(answer), top(data=text), files or {}, ("run",), sound=True
    )


def file(name: str, path: str, content: Content, *answer: str) -> Case:
    """Return a case with another file of rows."""
    text = top(data=f"{{train: {path}, label: y, valid: 0.25}}")
    shown = f"{path}: {short(content)}" if isinstance(content, (str, bytes)) else path
    return Case(name, shown, answered(answer), text, {path: content}, ("run",), sound=True)


def steps(name: str, text: str, *answer: str, rows: str = BASE["data"]) -> Case:
    """Return a case with other steps, and possibly other data."""
    shown = f"space: {text}" if rows == BASE["data"] else f"data: {rows}⏎space: {text}"
    return Case(name, shown, answered(answer), top(data=rows, space=text), {}, ("run",), sound=True)


def short(content: str | bytes) -> str:
    """Return the beginning of a file's content in one line."""
    text = (
        content
        if isinstance(content, str)
        else "".join(chr(b) if 32 <= b < 127 else f"\\x{b:02x}" for b in content[:12])
    )
    text = text.replace("\n", "⏎").replace("\t", "⇥")
    return text if len(text) <= 40 else text[:39] + "…"


def parquet(rows: str = ROWS) -> bytes:
    """Convert rows of CSV to Parquet."""
    import io

    import pyarrow.csv
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(io.BytesIO(rows.encode())), sink)
    return sink.getvalue()
