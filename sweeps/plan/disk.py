"""Estimate the size of a sweep's checkpoints.

Everything else in the sweep's folder is small, except for the test split.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweeps.data import sklearn_datasets
from sweeps.plan.chains import values_of
from sweeps.search.configurations import most_trials
from sweeps.space import DataSpec, Dimension, Space, Step
from sweeps.space.templates import Template, children

# Number of checkpoints that a running trial keeps at least, even if `checkpoints.per_trial` is 1:
# the latest and the best checkpoint.
MIN_CHECKPOINTS = 2
# If a space has at most this number of conditional parameters, every combination of present and
# absent parameters is evaluated.
MAX_CONDITIONAL = 8
# Names of the built-in steps that may return more columns than they receive.
WIDENING_STEPS = (
    "OneHotEncoder",
    "MultiHotEncoder",
    "CountVectorizer",
    "HashingVectorizer",
    "FeatureHasher",
)


# (rows, outputs) of the data sets that scikit-learn contains. A test compares these numbers with
# scikit-learn.
SKLEARN_SIZES = {
    "breast_cancer": (569, 1),
    "diabetes": (442, 1),
    "digits": (1797, 10),
    "iris": (150, 3),
    "wine": (178, 3),
}
# What the estimate assumes if the number of rows is unknown
ANY_ROWS = "for any number of rows"


@dataclass(frozen=True)
class DiskUse:
    """Disk space that a sweep's checkpoints need.

    Attributes:
        checkpoints: The largest possible number of checkpoints on the disk: for each trial, the
            best checkpoint and one or more of the latest checkpoints.
        each: The largest size of one checkpoint in bytes, as computed with the formula in the
            trainer's `TRAINER` literal. None if the trainer has no formula, or if the formula
            depends on data that has not been read.
        assumed: What is assumed, such as "two classes at most"; None if nothing is.
        free: Free bytes on the disk of the sweep's folder; None if this number is unknown.
    """

    checkpoints: int
    each: int | None
    assumed: str | None
    free: int | None

    @property
    def total(self) -> int | None:
        """The largest possible size of all checkpoints together in bytes; None if the size of a checkpoint is unknown."""
        return None if self.each is None else self.checkpoints * self.each

    @property
    def short(self) -> bool:
        """True if the checkpoints may need more space than is free on the disk.

        False if the number of rows is unknown: the estimate is then far too large for few rows.
        """
        if self.total is None or self.free is None or ANY_ROWS in (self.assumed or ""):
            return False
        return self.total > self.free


def estimate_disk(space: Space, free: int | None) -> DiskUse:
    """Estimate the size of a sweep's checkpoints from the space file alone, without reading the data.

    Args:
        space: The search space.
        free: Free bytes on the disk of the sweep's folder; None if this number is unknown.
    """
    count = (
        max(MIN_CHECKPOINTS, space.checkpoints.per_trial) * most_trials(space) * space.repeats.count
    )
    formula = space.trainer_definition.checkpoint_bytes
    if formula is None:
        return DiskUse(count, None, None, free)
    variants = [_known_sizes(spec) for spec in space.variants]
    largest = {
        name: max(v[name] for v in variants)
        for name in ("rows", "features", "outputs")
        if all(name in v for v in variants)
    }
    known = {
        "max_t": space.scheduler.max_t or 0,
        "rows": largest.get("rows", math.inf),
        "outputs": largest.get("outputs", 1),
        "features": None
        if adds_columns(space.sections.get("preprocessor"))
        else largest.get("features"),
    }
    # If a conditional parameter is absent, the formula uses its default, which may be larger than
    # all values of the parameter's domain.
    params = largest_values(space.sections.get("params", {}))
    sizes = []
    for absent in _absences(space.sections.get("params")):
        present = {name: value for name, value in params.items() if name not in absent}
        sizes.append(evaluate_formula(formula, present | known))
    each = None if None in sizes else max(size for size in sizes if size is not None)
    assumptions = {"outputs": "two classes at most", "rows": ANY_ROWS}
    assumed = [
        text for name, text in assumptions.items() if name not in largest and name in formula
    ]
    return DiskUse(count, each, None if each is None else ", ".join(assumed) or None, free)


def _known_sizes(data: DataSpec) -> dict[str, float]:
    """Return the numbers of `rows`, `features` and model `outputs`, as far as they follow from the space file alone.

    An unknown number is left out. A model has one output for a binary task and a regression, and
    one for each of several label columns.
    """
    known: dict[str, float] = {}
    name = data.train.removeprefix("sklearn:")
    if name != data.train and name in SKLEARN_SIZES and data.label == "target":
        rows, outputs = SKLEARN_SIZES[name]
        removed = {*data.drop, *data.weight_columns}
        known = {
            "rows": rows,
            "features": len(sklearn_datasets.feature_names(name)) - len(removed),
            "outputs": outputs,
        }
    if len(data.labels) > 1:
        return known | {"outputs": len(data.labels)}
    return known | ({"outputs": 1} if data.task in ("binary", "regression") else {})


def _absences(params: Template) -> Iterator[tuple[str, ...]]:
    """Yield the sets of parameters to treat as absent: all subsets of the parameters that have a condition (`when`).

    If more than `MAX_CONDITIONAL` parameters have a condition, yield only the empty set, each
    single parameter, and the whole set.
    """
    inside = params if isinstance(params, dict) else {}
    names = [name for name, value in inside.items() if isinstance(value, Dimension) and value.when]
    sizes: Iterable[int] = (
        range(len(names) + 1) if len(names) <= MAX_CONDITIONAL else (0, 1, len(names))
    )
    for size in sizes:
        yield from itertools.combinations(names, size)


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes on the disk of a folder; None if the number cannot be determined.

    The folder may not exist yet.
    """
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def adds_columns(template: Template) -> bool:
    """Return True if a step of a preprocessing chain may add columns.

    Every user-defined step may add columns.
    """
    if isinstance(template, Step):
        return template.name in WIDENING_STEPS or ":" in template.name
    return any(map(adds_columns, children(template)))


def largest_values(params: Template) -> dict[str, float]:
    """Return the largest value of each numeric parameter, by the name of the parameter."""
    if isinstance(params, Dimension):
        merged: dict[str, float] = {}
        for option in params.options:
            for name, number in largest_values(option.value).items():
                merged[name] = max(number, merged.get(name, number))
        return merged
    if not isinstance(params, dict):
        return {}
    found = {name: max(_numbers(value), default=None) for name, value in params.items()}
    return {name: number for name, number in found.items() if number is not None}


def _numbers(template: Template) -> list[float]:
    """Return the possible numeric values of a parameter.

    For a numeric domain, return only the largest value.
    """
    if isinstance(template, Dimension):
        if template.options:
            return [number for option in template.options for number in _numbers(option.value)]
        keys = values_of(template)
        top = template.highest if keys is None else keys[-1]
        return [] if top is None else [float(top)]
    return (
        [float(template)]
        if isinstance(template, (int, float)) and not isinstance(template, bool)
        else []
    )


_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def evaluate_formula(formula: str, names: Mapping[str, float | None]) -> int | None:
    """Evaluate a trainer's formula for the size of a checkpoint, without running it as code.

    Args:
        formula: Arithmetic with + - * / **, `min`, `max` and `or`. Each variable is a parameter, or
            one of `max_t`, `rows`, `features` and `outputs`. A variable that is not in `names` is
            0, so `max_depth or 6` is 6 if `max_depth` is absent.
        names: Value of each variable, by name; None for an unknown value. For a parameter, this is
            the largest possible value.

    Returns:
        The size in bytes; None if the formula needs an unknown value or is not valid.
    """

    def value(node: ast.expr) -> float:
        """Evaluate one node of the formula.

        Raise ValueError if a value is unknown or if the syntax is not allowed.
        """
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
