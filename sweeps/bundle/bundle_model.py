"""Load a bundle and predict raw rows with it. This module does not import MLflow."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from sweeps.core.errors import BundleError, InputError, SweepsError
from sweeps.core.files.sweep_folder import is_sweep
from sweeps.core.plugins import references
from sweeps.data.columns.columns import InputColumn
from sweeps.data.columns.parse import is_lenient, parse_values
from sweeps.data.preprocessing.fitted_chain import FittedChain, one_line

from . import integrity, schema
from .averaging import average, to_numbers
from .manifest import (
    DATA_FOLDER,
    MEMBERS_FOLDER,
    MODEL_FOLDER,
    Manifest,
    require_bundle,
)
from .predictions import label_output, unlabeled_output
from .schema import Cell
from .shared_chains import SharedChains

# Dtypes of checked values, by the type of the column in the manifest. Other values are objects.
_DTYPES = {"integer": "float64", "double": "float64", "string": "str"}


class Predictor(Protocol):
    """A model, as the trainer's `load` returns it."""

    def predict(self, rows: pd.DataFrame, /) -> object:
        """Return an array, a frame or a list, with one entry for each prepared row."""


class Bundle:
    """A model and its fitted preprocessor, or an ensemble of models.

    Each model of an ensemble has its own fitted preprocessor.

    Attributes:
        path: The bundle's folder.
        manifest: The bundle's manifest.
        known_values: The values of each raw column of categories in training.
        unseen: Number of values that the model treats as missing, by column, as `count_unseen` has
            counted them.
        cells: Number of all values that `count_unseen` has counted, by column.
        members: The models of an ensemble, each with the methods of a bundle, in the order of
            `manifest.members`. Empty for a single model.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        model: Predictor | None = None,
        fitted: FittedChain | None = None,
        members: Sequence[Bundle] = (),
    ):
        self.path = path
        self.manifest = manifest
        self.members = tuple(members)
        self._model = model
        self._fitted = fitted
        self.unseen = Counter[str]()
        self.cells = Counter[str]()
        self.known_values: dict[str, Iterable[object]] = {
            c.name: c.categories for c in manifest.columns if c.categories
        }
        # Rules of `data.parse` that allow texts that do not fit, by column
        self._lenient: dict[str, str] = {}
        if fitted is not None:
            self.known_values |= fitted.known_values
            self._lenient |= {c.name: c.parse for c in fitted.inputs if is_lenient(c.parse)}
        for member in members:
            self.known_values |= member.known_values
            self._lenient |= member._lenient

    def count_unseen(self, values: Mapping[str, Any]) -> None:
        """Count the values that the model treats as missing, in `unseen`.

        These are categories that training never saw, and texts that do not fit a rule of
        `data.parse` that allows other texts.

        Args:
            values: Values of each raw column, such as a frame.
        """
        markers = {column.name: column.missing for column in self.manifest.columns}
        for name in {**self.known_values, **self._lenient}:
            column_values = pd.Series(values.get(name), dtype=object)
            cells = schema.without_markers(column_values, markers.get(name)).dropna()
            if name in self._lenient:
                is_known = parse_values(cells, self._lenient[name], name).notna()
            else:
                training_values = pd.Index(self.known_values[name])
                if pd.api.types.is_numeric_dtype(training_values):
                    cells = pd.to_numeric(cells, errors="coerce")
                is_known = cells.isin(training_values)
            self.unseen[name] += int((~is_known).sum())
            self.cells[name] += len(cells)

    @property
    def unseen_notes(self) -> list[str]:
        """A text for each column with values that the model treats as missing."""
        notes = []
        for name, count in (+self.unseen).items():  # `+` leaves out counts of 0
            rule = (
                "do not fit the rule in data.parse"
                if name in self._lenient
                else "were not in the training data"
            )
            notes.append(
                f"{count:,} of {self.cells[name]:,} values of `{name}` {rule}; predicted as missing"
            )
        return notes

    def predict(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return predictions for raw rows.

        If the training loop read its own data, the model gets `rows` unchanged. If the model then
        returns a frame, the result is this frame with the index of `rows`. If the model returns an
        array, the result has the column `prediction`, or one column `prediction_<number>` for each
        column of a 2-D array.

        Args:
            rows: n raw rows. The columns are matched by name, so their order does not matter.
                Columns that are not features are ignored.

        Returns:
            n rows with the index of `rows`. The column `prediction` has original classes; for
            regression, it has numbers. If the model returns probabilities, the result also has a
            column `probability_<class>` for each class. For several label columns, there is a
            column `prediction_<label>` for each; if each label is 0 or 1, there is also a column
            `probability_<label>` for each.

        Raises:
            InputError: Columns are missing, a value does not fit its column, or the preprocessor or
                the model raised an error.
        """
        if not self.manifest.columns:
            return unlabeled_output(self._model_predict(rows), rows.index)
        return label_output(self.manifest, self.model_output(rows), rows.index)

    def transform(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Apply the fitted preprocessor to raw rows. The result is what the model gets.

        Args:
            rows: n raw rows, in the format that `predict` takes.

        Returns:
            n rows with the index of `rows`. The columns are the preprocessed features, in the order
            of training. If there is no preprocessor, the columns are the raw features, in the order
            and with the dtypes of training.

        Raises:
            InputError: Columns are missing, a value does not fit its column, or the preprocessor
                raised an error. Also raised for an ensemble, whose members have different
                preprocessors.
        """
        if self.members:
            raise InputError(
                "transform",
                "each member of an ensemble has its own preprocessor; use "
                "`bundle.members[0].transform`",
            )
        raw = schema.enforce_schema(rows, self.manifest.columns) if self.manifest.columns else rows
        return self._prepare(raw).set_axis(rows.index, axis=0)

    def model_output(self, rows: pd.DataFrame) -> np.ndarray:
        """Preprocess raw rows and return the output of the model.

        The output is not translated to the original classes.

        Args:
            rows: n raw rows, in the format that `predict` takes.

        Returns:
            An array, usually of shape (n,) or (n, k). `label_output` describes its values. For an
            ensemble, it is the weighted mean of the members' outputs; see
            `sweeps.bundle.averaging`.

        Raises:
            InputError: See `predict`.
        """
        if not self.manifest.columns:
            return np.asarray(self._model_predict(rows))
        raw = schema.enforce_schema(rows, self.manifest.columns)
        if raw.empty:  # some models raise an error if there are no rows
            return np.zeros((0, len(self.manifest.classes or self.manifest.prediction_names)))
        return np.asarray(self._model_predict(raw))

    def predict_values(self, values: Mapping[str, list[Cell]], count: int) -> pd.DataFrame:
        """Predict rows whose values were already checked against their columns.

        This function is faster than `predict`. The results are bit-identical.

        Args:
            values: Values of each column, for all columns. Missing numbers are NaN; other missing
                values are None.
            count: Number of rows.

        Returns:
            The predictions in the format of `predict`, with a range index.

        Raises:
            InputError: The preprocessor or the model refused the values.
        """
        if (output := self._output_of_values(values, count)) is not None:
            return label_output(self.manifest, output, pd.RangeIndex(count))
        frame = {
            c.name: pd.Series(values[c.name], dtype=_DTYPES.get(c.type, "object"))
            for c in self.manifest.columns
        }
        return self.predict(pd.DataFrame(frame, index=pd.RangeIndex(count), copy=False))

    def _prepare(self, raw: pd.DataFrame) -> pd.DataFrame:
        """Apply the fitted preprocessor to rows that have the columns and dtypes of training."""
        with _as_input_errors("the preprocessor cannot prepare"):
            return raw if self._fitted is None else self._fitted.transform(raw)

    def _model_predict(self, raw: pd.DataFrame) -> np.ndarray | pd.DataFrame:
        """Return the output of the model, or the average of its members, for typed raw rows."""
        if not self.members:
            return self._checked_output(self._prepare(raw))
        outputs = []
        prepared: dict[int, pd.DataFrame] = {}  # by preprocessor, which members may share
        for member in self.members:
            key = id(member._fitted)
            if key not in prepared:
                own = raw[[column.name for column in member.manifest.columns]]
                prepared[key] = member._prepare(own)
            # A model of the user may add or remove columns.
            outputs.append(member._checked_output(prepared[key].copy(deep=False)))
        return self._average(outputs)

    def _checked_output(self, prepared: pd.DataFrame) -> np.ndarray | pd.DataFrame:
        """Return the model's output for prepared rows: a frame as it is, or else an array."""
        assert self._model is not None, "only an ensemble has no model of its own"
        with _as_input_errors():
            output = self._model.predict(prepared)
            output = output if isinstance(output, pd.DataFrame) else np.asarray(output)
            if output.ndim and len(output) != len(prepared):
                raise ValueError(
                    f"`predict` of the model returned {len(output)} outputs for {len(prepared)} "
                    "rows, but must return one output for each row"
                )
            return output

    def _average(self, outputs: Sequence[np.ndarray | pd.DataFrame]) -> np.ndarray:
        """Return the weighted mean of the members' outputs."""
        manifest = self.manifest
        classes = len(manifest.classes or ())
        numbers = [to_numbers(np.asarray(output), manifest.task, classes) for output in outputs]
        return average(numbers, [member.weight for member in manifest.members])

    def _output_of_values(self, values: Mapping[str, list[Cell]], count: int) -> np.ndarray | None:
        """Return the model's output for checked values.

        Return None if the values must be converted first; see `predict_values`.
        """
        if self.members:
            outputs = [member._output_of_values(values, count) for member in self.members]
            converted = [output for output in outputs if output is not None]
            return self._average(converted) if len(converted) == len(outputs) else None
        kinds = {c.name: c.type for c in self.manifest.columns}
        fitted = self._fitted
        # Without steps, `predict` keeps the integers of the rows, but the arrays below have floats.
        if not count or fitted is None or not fitted.fitted_steps:
            return None
        if not all(_needs_no_conversion(c, kinds[c.name]) for c in fitted.inputs):
            return None
        arrays = {c.name: _typed_array(values[c.name], c) for c in fitted.inputs}
        with _as_input_errors():
            prepared = fitted.transform_columns(arrays, count)
        return np.asarray(self._checked_output(prepared))


@contextlib.contextmanager
def _as_input_errors(problem: str = "the model cannot predict") -> Iterator[None]:
    """Within the block, convert errors of the preprocessor and the model to an `InputError`.

    The error concerns the rows. The preprocessor and the model may be a user's code and may raise
    any error. A server answers an `InputError` and continues to run.
    """
    try:
        yield
    except (MemoryError, SweepsError):
        raise
    except Exception as e:
        raise InputError("rows", f"{problem} these rows: {one_line(e)}") from e


def _needs_no_conversion(column: InputColumn, kind: str) -> bool:
    """Return whether `_typed_array` is enough to convert the checked values of a column.

    Args:
        column: The column in the preprocessor's input.
        kind: Type of the column in the manifest, such as "integer"; see `ColumnSchema.type`.
    """
    return (column.kind == "number" and kind in ("integer", "double", "boolean")) or (
        column.kind == "text" and kind == "string"
    )


def _typed_array(values: list[Cell], column: InputColumn) -> np.ndarray | ExtensionArray:
    """Return checked values of a column as an array of the preprocessor's input dtype."""
    if column.kind == "text":
        return pd.array(values, dtype="str")
    return np.array(values, dtype=np.float64).astype(column.dtype, copy=False)


def load_bundle(path: str | Path) -> Bundle:
    """Verify all files of a bundle, and load the bundle with the code that it contains.

    Args:
        path: The bundle's folder. If this is a sweep's folder, the bundle of the sweep's best trial
            is loaded.

    Returns:
        The loaded bundle.

    Raises:
        InputError: There is no bundle at `path`. If `path` is a sweep's folder, the message gives
            the reason.
        BundleError: A file is missing, changed or unexpected, or the bundle cannot be loaded.
    """
    path = Path(path).resolve()
    if not (path / integrity.MANIFEST).is_file() and is_sweep(path):
        # Imported here, because bundles do not contain this module
        from sweeps.space.python.saved_space import bundle_of

        path = bundle_of(path)
    require_bundle(path)
    try:
        integrity.use_bundle_code(path, integrity.verify_hashes(path))
    except (integrity.IntegrityError, OSError) as e:
        raise BundleError(str(e)) from None
    return load_verified(path)


def load_verified(path: Path) -> Bundle:
    """Load a bundle that is already verified and whose code is importable.

    Do not rename this function, because `sweeps/bundle/integrity.py` in each bundle calls it by
    name.

    Args:
        path: The bundle's folder.

    Raises:
        BundleError: The bundle cannot be loaded.
    """
    manifest = Manifest.read(path)
    data = path / DATA_FOLDER
    chains = SharedChains(path, manifest.files)
    if not manifest.members:
        return _load_model(path, manifest, data, chains)
    members = [
        _load_model(path, manifest.of_member(member), data / MEMBERS_FOLDER / member.folder, chains)
        for member in manifest.members
    ]
    return Bundle(path, manifest, members=members)


def _load_model(path: Path, manifest: Manifest, data: Path, chains: SharedChains) -> Bundle:
    """Load a single model and its preprocessor; see `load_verified`.

    Args:
        path: The bundle's folder.
        manifest: The manifest of the bundle, or of a member of the ensemble.
        data: Folder with the model and the preprocessor.
        chains: The preprocessors of the bundle.
    """
    try:
        fitted = chains.load(data, [column.name for column in manifest.columns])
        model = references.resolve(manifest.load)(str(data / MODEL_FOLDER))
    except Exception as e:  # a user's loader may raise anything
        message = str(e) if isinstance(e, references.RefError) else f"{type(e).__name__}: {e}"
        raise BundleError(
            f"{path}: cannot be loaded: {message}; the bundle was made with "
            f"{', '.join(manifest.requirements)}"
        ) from e
    if not callable(getattr(model, "predict", None)):
        raise BundleError(
            f"{path}: `{manifest.load}` returned a {type(model).__name__}, which has no method "
            "predict(DataFrame)"
        )
    return Bundle(path, manifest, model, fitted)
