"""What a sweep's folder will take: its checkpoints at most. Everything else in it is small, but for the test split."""

from __future__ import annotations

import ast
import itertools
import math
import operator
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.core import references
from sweeps.data import sklearn_datasets
from sweeps.plan.chains import values
from sweeps.space import DataSpec, Dimension, Space, Step
from sweeps.space.templates import Template, children

# While a trial runs, it has its latest checkpoint and its best, whatever `checkpoints.per_trial` says.
LEAST = 2
# The literal of a trainer's module that says how large a checkpoint can be; see `bytes_of`.
FORMULA = "CHECKPOINT_BYTES"
# Of so many parameters with a condition every combination is tried.
MOST_ABSENT = 8
# Steps that may make more columns than they are given.
WIDENING = ("OneHotEncoder", "MultiHotEncoder", "CountVectorizer", "HashingVectorizer", "FeatureHasher")


@dataclass(frozen=True)
class Table:
    """What is known of a sweep's data without reading it; None for what is not.

    Attributes:
        rows: of all splits.
        features: columns beside the label.
        outputs: the classes if they are more than two, else 1.
    """

    rows: int | None = None
    features: int | None = None
    outputs: int | None = None


# Rows and outputs of the sets that scikit-learn ships; a test holds them against it.
SHIPPED = {"breast_cancer": (569, 1), "diabetes": (442, 1), "digits": (1797, 10), "iris": (150, 3), "wine": (178, 3)}


@dataclass(frozen=True)
class Disk:
    """What a sweep's folder will take.

    Attributes:
        checkpoints: how many there are at most: the best and the latest of each trial.
        each: bytes of one at most, by the trainer's own formula; None if the trainer has none, or the data would have to be read for it.
        assumed: what the formula took for granted, in a few words; None for nothing.
        free: bytes free where the folder will be; None if nobody looked.
    """

    checkpoints: int
    each: int | None
    assumed: str | None
    free: int | None

    @property
    def total(self) -> int | None:
        """Bytes of all checkpoints at most; None if unknown."""
        return None if self.each is None else self.checkpoints * self.each

    @property
    def short(self) -> bool:
        """Whether they may not fit."""
        return self.total is not None and self.free is not None and self.total > self.free


def disk(space: Space, table: Table | None, free: int | None) -> Disk:
    """What the checkpoints of a sweep will take.

    Args:
        space: what is searched.
        table: what is known of the data; None for no more than the space file tells.
        free: bytes free where the sweep's folder will be.
    """
    count = max(LEAST, space.checkpoints.per_trial) * space.limits.max_trials * space.repeats.count
    formula = references.literal(space.trainer.loop.partition(":")[0], FORMULA, (space.data.base, Path.cwd()))
    if not isinstance(formula, str):
        return Disk(count, None, None, free)
    table = table or _most([_known(spec) for spec in space.variants])
    outputs = _outputs(space.data, table)
    params = largest(space.sections.get("params", {}))
    known = {
        "max_t": space.scheduler.max_t or 0,
        "rows": table.rows or math.inf,
        "outputs": outputs or 1,
        "features": None if widens(space.sections.get("preprocessor")) else table.features,
    }
    # A parameter that is not always there may be larger by its default than by its domain.
    sizes = [
        bytes_of(formula, {n: x for n, x in params.items() if n not in gone} | known) for gone in _absences(space.sections.get("params"))
    ]
    each = None if None in sizes else max(size for size in sizes if size is not None)
    two_classes = "two classes at most" if each is not None and outputs is None and "outputs" in formula else None
    return Disk(count, each, two_classes, free)


def _known(data: DataSpec) -> Table:
    """What a space file alone tells of its data."""
    name = data.train.removeprefix("sklearn:")
    if name == data.train or name not in SHIPPED or data.label != "target":
        return Table()
    rows, outputs = SHIPPED[name]
    return Table(rows, len(sklearn_datasets.feature_names(name)) - len(data.drop), outputs)


def _most(tables: Sequence[Table]) -> Table:
    """The most that any variant of the data comes to; nothing of what is not known of each."""
    found = {name: [getattr(table, name) for table in tables] for name in ("rows", "features", "outputs")}
    return Table(**{name: None if None in numbers else max(numbers) for name, numbers in found.items()})


def _absences(params: Template) -> Iterator[tuple[str, ...]]:
    """The sets of parameters that conditions may take away together; of very many, each alone and all at once."""
    inside = params if isinstance(params, dict) else {}
    names = [name for name, value in inside.items() if isinstance(value, Dimension) and value.when]
    sizes: Iterable[int] = range(len(names) + 1) if len(names) <= MOST_ABSENT else (0, 1, len(names))
    for size in sizes:
        yield from itertools.combinations(names, size)


def _outputs(data: DataSpec, table: Table) -> int | None:
    return 1 if data.task in ("binary", "regression") else table.outputs


def free_at(folder: Path) -> int | None:
    """Bytes free where a folder is, or will be made; None where nobody can tell."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def widens(template: Template) -> bool:
    """Whether a step of a chain may make more columns: one that is known to, or one that is not ours to know."""
    if isinstance(template, Step):
        return template.name in WIDENING or ":" in template.name
    inside = [option.value for option in template.options] if isinstance(template, Dimension) else children(template)
    return any(map(widens, inside))


def largest(params: Template) -> dict[str, float]:
    """The largest number that each parameter can be; those that are never a number are left out."""
    if isinstance(params, Dimension):
        merged: dict[str, float] = {}
        for option in params.options:
            for name, number in largest(option.value).items():
                merged[name] = max(number, merged.get(name, number))
        return merged
    if not isinstance(params, dict):
        return {}
    found = {name: max(_numbers(value), default=None) for name, value in params.items()}
    return {name: number for name, number in found.items() if number is not None}


def _numbers(template: Template) -> list[float]:
    if isinstance(template, Dimension):
        if template.options:
            return [number for option in template.options for number in _numbers(option.value)]
        keys = values(template)
        top = template.highest if keys is None else keys[-1]
        return [] if top is None else [float(top)]
    return [float(template)] if isinstance(template, (int, float)) and not isinstance(template, bool) else []


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def bytes_of(formula: str, names: Mapping[str, float | None]) -> int | None:
    """What a trainer's `CHECKPOINT_BYTES` comes to: arithmetic with + - * / **, `min`, `max` and `or`. Nothing of it is run.

    Args:
        formula: its names are parameters, each at its largest and 0 if absent (so `max_depth or 6` has a default), and `max_t`, `rows`,
            `features`, `outputs`.
        names: what they stand for; None for what is not known.

    Returns:
        None if it needs what is not known, or is no such arithmetic.
    """

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float()):
                return float(node.value)  # type: ignore[arg-type]
            case ast.Name(id=name):
                found = names.get(name, 0.0)
                if found is None:
                    raise ValueError(name)
                return float(found)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.BoolOp(op=ast.Or(), values=parts):
                return next((v for v in map(value, parts) if v), 0.0)
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]) if args:
                return (min if name == "min" else max)(map(value, args))
        raise ValueError(ast.dump(node))

    try:
        return int(value(ast.parse(formula.strip(), mode="eval").body))
    except (ValueError, SyntaxError, TypeError, OverflowError, ZeroDivisionError, RecursionError):
        return None
