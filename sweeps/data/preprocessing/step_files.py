"""Write and read a fitted chain: `preprocessor.json`, and a pickle for each step that needs one.

A step needs a pickle if it cannot be written as plain data.

    {"steps": [...], "label": "y", "inputs": [...], "outputs": [...], "stages": [{"kind": "scale",
    ...}, ...]}

`steps` are the steps as configured in the space file, and `stages` are the fitted steps. Floats are
read back exactly. A user's function is stored as its name, `module:function`, and imported when the
chain is loaded.
"""

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionDtype

from sweeps.core.plugins import references
from sweeps.data.columns.columns import InputColumn

from . import portable_steps
from .fitted_chain import FittedChain, StepConfig
from .fitted_steps import FittedStep, FunctionStep

FILE = "preprocessor.json"


def save_chain(fitted: FittedChain, folder: Path) -> dict[str, str]:
    """Write a chain into a folder.

    Returns:
        The class of the object in each pickle, by file name, such as {"preprocessor-1.pkl":
        "sklearn.decomposition._pca.PCA"}.

    Raises:
        pickle.PicklingError, TypeError, AttributeError: A step cannot be pickled.
    """
    pickled = {}
    stages = []
    for i, step in enumerate(fitted.fitted_steps):
        stored = _to_json(step)
        if stored is None:
            name = f"preprocessor-{i + 1}.pkl"
            (folder / name).write_bytes(pickle.dumps(step))
            kind = type(getattr(step, "estimator", step))
            pickled[name] = f"{kind.__module__}.{kind.__qualname__}"
            stored = {"kind": "pickle", "file": name}
        stages.append(stored)
    outputs = [_column_json(name, fitted.empty[name].dtype) for name in fitted.empty.columns]
    chain = [{"name": s.name, "columns": s.columns, "params": s.params} for s in fitted.steps]
    description = {
        "steps": json.loads(json.dumps(chain, default=str)),
        "label": fitted.label,
        "inputs": [asdict(c) for c in fitted.inputs],
        "outputs": outputs,
        "stages": stages,
    }
    text = json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")
    return pickled


def load_chain(folder: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> FittedChain:
    """Load a chain that `save_chain` wrote.

    The function loads pickles and imports users' functions, so it may run code.

    Args:
        folder: Folder of the chain.
        read: Function that returns the contents of a pickle file. It may raise an error to refuse a
            file.

    Raises:
        ValueError, KeyError, TypeError: The files do not describe a chain.
    """
    stored = read_description(folder)
    stages = tuple(_from_json(stage, folder, read) for stage in stored["stages"])
    steps = tuple(StepConfig(s["name"], s["columns"], s["params"]) for s in stored["steps"])
    empty = pd.DataFrame({c["name"]: pd.Series([], dtype=_dtype(c)) for c in stored["outputs"]})
    label = tuple(stored["label"]) if isinstance(stored["label"], list) else stored["label"]
    inputs = tuple(InputColumn(**c) for c in stored["inputs"])
    return FittedChain(steps, label, inputs, stages, empty)


def read_description(folder: Path) -> dict[str, Any]:
    """Read `preprocessor.json` as plain data, without loading pickles or importing functions."""
    return dict(json.loads((folder / FILE).read_text(encoding="utf-8")))


def function_references(folder: Path) -> list[str]:
    """Return the `module:function` of each fitted step that is a user's function."""
    return [
        stage["function"]
        for stage in read_description(folder)["stages"]
        if stage["kind"] == "function"
    ]


def _to_json(step: FittedStep) -> dict[str, Any] | None:
    """Return a description of a step as plain data. Return None if the step can only be pickled.

    Plain data must be the same after it was written and read, so a tuple is no plain data.
    """
    if isinstance(step, portable_steps.PortableStep):
        described = step.to_json()
    elif isinstance(step, FunctionStep) and (name := _reference(step.function)) is not None:
        described = {
            "kind": "function",
            "function": name,
            "inputs": list(step.inputs),
            "params": dict(step.params),
        }
    else:
        return None
    try:
        is_plain = json.loads(json.dumps(described, allow_nan=False)) == described
    except (TypeError, ValueError):
        return None
    return described if is_plain else None


def _reference(function: Callable[..., pd.DataFrame]) -> str | None:
    """Return the `module:function` that leads to a function; None if there is none."""
    name = f"{function.__module__}:{getattr(function, '__qualname__', '?')}"
    try:
        is_importable = function.__module__ != "__main__" and references.resolve(name) is function
    except references.RefError:
        return None
    return name if is_importable else None


def _from_json(
    stored: Mapping[str, Any], folder: Path, read: Callable[[Path], bytes]
) -> FittedStep:
    """Load a fitted step from its description; see `load_chain` for the arguments."""
    if stored["kind"] == "pickle":
        step: FittedStep = pickle.loads(read(folder / Path(stored["file"]).name))
        return step
    if stored["kind"] == "function":
        return FunctionStep(
            references.resolve(stored["function"]), tuple(stored["inputs"]), stored["params"]
        )
    return portable_steps.from_json(stored)


def _column_json(name: str, dtype: np.dtype | ExtensionDtype) -> dict[str, Any]:
    """Return the name and the dtype of a prepared column as plain data."""
    if not isinstance(dtype, pd.CategoricalDtype):
        return {"name": name, "dtype": str(dtype)}
    return {
        "name": name,
        "dtype": "category",
        "of": str(dtype.categories.dtype),  # the dtype of the categories
        "categories": dtype.categories.tolist(),
        "ordered": bool(dtype.ordered),
    }


def _dtype(stored: Mapping[str, Any]) -> np.dtype | ExtensionDtype | str:
    """Return the dtype that `_column_json` stored."""
    dtype: str = stored["dtype"]
    if dtype == "category":
        categories = pd.Index(stored["categories"], dtype=stored["of"])
        return pd.CategoricalDtype(categories, stored["ordered"])
    return np.dtype(dtype) if dtype in ("object", "bool") else dtype
