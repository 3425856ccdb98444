"""Estimate the size of a sweep's checkpoints. Everything else in its folder is small, except for the test split."""

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
from sweeps.space import DataSpec, Dimension, Space, Step
from sweeps.space.templates import Template, children

# A running trial keeps its latest and its best checkpoint, even if `checkpoints.per_trial` is 1.
MIN_CHECKPOINTS = 2
# Up to this number of conditional parameters, every combination of present and absent ones is evaluated.
MAX_CONDITIONAL = 8
# Steps that may return more columns than they get.
WIDENING_STEPS = ("OneHotEncoder", "MultiHotEncoder", "CountVectorizer", "HashingVectorizer", "FeatureHasher")


# (rows, outputs) of the data sets that scikit-learn ships. A test compares them with scikit-learn.
SKLEARN_SIZES = {"breast_cancer": (569, 1), "diabetes": (442, 1), "digits": (1797, 10), "iris": (150, 3), "wine": (178, 3)}


@dataclass(frozen=True)
class DiskUse:
    """Disk space that a sweep's checkpoints need.

    Attributes:
        checkpoints: The largest number of checkpoints at one time: the best and the latest of each trial.
        each: The largest size of a checkpoint in bytes, by the trainer's formula. None if the trainer has no formula, or if it depends
            on data that has not been read.
        assumed: An assumption that the formula needs, in a few words; None without one.
        free: Free bytes on the disk of the sweep's folder; None if unknown.
    """

    checkpoints: int
    each: int | None
    assumed: str | None
    free: int | None

    @property
    def total(self) -> int | None:
        """The largest size of all checkpoints together, in bytes; None if unknown."""
        return None if self.each is None else self.checkpoints * self.each

    @property
    def short(self) -> bool:
        """True if the checkpoints may not fit on the disk."""
        return self.total is not None and self.free is not None and self.total > self.free


def estimate_disk(space: Space, free: int | None) -> DiskUse:
    """Estimate the size of a sweep's checkpoints from its space file alone.

    Args:
        space: The search space.
        free: Free bytes on the disk of the sweep's folder.
    """
    count = max(MIN_CHECKPOINTS, space.checkpoints.per_trial) * space.limits.max_trials * space.repeats.count
    formula = space.trainer_definition.checkpoint_bytes
    if formula is None:
        return DiskUse(count, None, None, free)
    variants = [_known_sizes(spec) for spec in space.variants]
    largest = {name: max(v[name] for v in variants) for name in ("rows", "features", "outputs") if all(name in v for v in variants)}
    known = {
        "max_t": space.scheduler.max_t or 0,
        "rows": largest.get("rows", math.inf),
        "outputs": largest.get("outputs", 1),
        "features": None if adds_columns(space.sections.get("preprocessor")) else largest.get("features"),
    }
    # The default of an absent conditional parameter may be larger than every value of its domain.
    params = largest_values(space.sections.get("params", {}))
    sizes = []
    for absent in _absences(space.sections.get("params")):
        present = {name: value for name, value in params.items() if name not in absent}
        sizes.append(evaluate_formula(formula, present | known))
    each = None if None in sizes else max(size for size in sizes if size is not None)
    two_classes = "two classes at most" if each is not None and "outputs" not in largest and "outputs" in formula else None
    return DiskUse(count, each, two_classes, free)


def _known_sizes(data: DataSpec) -> dict[str, float]:
    """Return those of `rows`, `features` and `outputs` that follow from the space file alone. A binary model has one output."""
    known: dict[str, float] = {}
    name = data.train.removeprefix("sklearn:")
    if name != data.train and name in SKLEARN_SIZES and data.label == "target":
        rows, outputs = SKLEARN_SIZES[name]
        known = {"rows": rows, "features": len(sklearn_datasets.feature_names(name)) - len(data.drop), "outputs": outputs}
    return known | ({"outputs": 1} if data.task in ("binary", "regression") else {})


def _absences(params: Template) -> Iterator[tuple[str, ...]]:
    """Yield the sets of conditional parameters that may be absent together. If there are too many: each alone, and all together."""
    inside = params if isinstance(params, dict) else {}
    names = [name for name, value in inside.items() if isinstance(value, Dimension) and value.when]
    sizes: Iterable[int] = range(len(names) + 1) if len(names) <= MAX_CONDITIONAL else (0, 1, len(names))
    for size in sizes:
        yield from itertools.combinations(names, size)


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes on the disk of a folder that may not exist yet; None if unknown."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def adds_columns(template: Template) -> bool:
    """Return whether a step of a chain may add columns. A user's own step may."""
    if isinstance(template, Step):
        return template.name in WIDENING_STEPS or ":" in template.name
    return any(map(adds_columns, children(template)))


def largest_values(params: Template) -> dict[str, float]:
    """Return the largest value of each numeric parameter."""
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
    """Return the numbers that a parameter may be. For a domain of numbers, return only the largest."""
    if isinstance(template, Dimension):
        if template.options:
            return [number for option in template.options for number in _numbers(option.value)]
        keys = values_of(template)
        top = template.highest if keys is None else keys[-1]
        return [] if top is None else [float(top)]
    return [float(template)] if isinstance(template, (int, float)) and not isinstance(template, bool) else []


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
        formula: Arithmetic with + - * / **, `min`, `max` and `or`. Names stand for the largest values of parameters, and for `max_t`,
            `rows`, `features` and `outputs`. An absent parameter is 0, so `max_depth or 6` gives a default.
        names: Value of each name; None for an unknown value.

    Returns:
        The size in bytes; None if the formula needs an unknown value or is not valid.
    """

    def value(node: ast.expr) -> float:
        """Evaluate one node. Raise ValueError for an unknown value or any other syntax."""
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
