"""A loaded bundle: raw rows in, predictions out. Imports no MLflow."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from sweeps.bundle import integrity, schema
from sweeps.bundle.manifest import CUSTOM_PREPROCESSOR, DATA_FOLDER, MODEL_FOLDER, Manifest
from sweeps.core import old_pickles, references
from sweeps.core.errors import BundleError, InputError, Problem, SweepsError
from sweeps.core.sweep_folder import SweepFolder
from sweeps.data.columns import InputColumn
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fitted_chain import FittedChain

T = TypeVar("T")


class Bundle:
    """A model and its fitted preprocessor.

    Attributes:
        path: the folder.
        manifest: how it was made.
    """

    def __init__(self, path: Path, manifest: Manifest, model: Any, fitted: Any):
        self.path, self.manifest, self._model, self._fitted = path, manifest, model, fitted

    def predict(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Predict raw rows.

        Args:
            rows: the raw features by name, in any order; further columns are ignored.

        Returns:
            With the index of `rows`: `prediction` (a class's original value, or a number) and, where the model gives
            probabilities, `probability_<class>` for each class. If the training loop read its own data, the model gets `rows` unchanged.
            Then a frame that it returns is returned as it is; an array becomes `prediction`, or `prediction_<number>` for each column.

        Raises:
            InputError: naming the missing columns, or the values that their columns cannot hold; or the preprocessor or the model raised.
        """
        if not self.manifest.columns:
            return _unlabelled_output(self._model_predict(rows), rows.index)
        return label_output(self.manifest, self.model_output(rows), rows.index)

    def transform(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Prepare raw rows as the model gets them.

        Args:
            rows: n rows of the raw features by name, in any order; further columns are ignored.

        Returns:
            n rows with the index of `rows`: the features after the fitted preprocessor, in the order of training. Without a preprocessor
            the raw features, in the order and the dtypes of training.

        Raises:
            InputError: as `predict`.
        """
        raw = schema.enforce_schema(rows, self.manifest.columns) if self.manifest.columns else rows
        return self._call_on_rows(raw, self._prepare).set_axis(rows.index, axis=0)

    def model_output(self, rows: pd.DataFrame) -> np.ndarray:
        """The model's own output for raw rows: shape (n,) or (n, k).

        Raises:
            InputError: as `predict`.
        """
        if not self.manifest.columns:
            return np.asarray(self._model_predict(rows))
        raw = schema.enforce_schema(rows, self.manifest.columns)
        if raw.empty:  # not every model takes no rows
            k = len(self.manifest.classes or ())
            return np.zeros((0, k) if k > 2 else 0)
        return np.asarray(self._call_on_rows(raw, self._model_predict))

    def _prepare(self, raw: pd.DataFrame) -> pd.DataFrame:
        with _as_input_errors("the preprocessor cannot prepare"):
            return raw if self._fitted is None else self._fitted.transform(raw)

    def _model_predict(self, raw: pd.DataFrame) -> Any:
        with _as_input_errors():
            prepared = raw if self._fitted is None else self._fitted.transform(raw)
            return _check_length(self._model.predict(prepared), len(raw))

    def _call_on_rows(self, raw: pd.DataFrame, work: Callable[[pd.DataFrame], T]) -> T:
        """Return what `work` makes of rows; where it refuses them, name the value.

        Raises:
            InputError: as `predict`.
        """
        try:
            return work(raw)
        except InputError as e:
            if (found := self._find_refused_value(raw, work, e)) is None:
                raise
            raise found from e

    def _find_refused_value(self, raw: pd.DataFrame, work: Callable[[pd.DataFrame], Any], refused: InputError) -> InputError | None:
        """The value that is refused, if one is: of the first row with which `work` fails, the column without which it does not."""
        if raw.empty:
            return None

        def fails(rows: pd.DataFrame) -> bool:
            try:
                work(rows)
            except Exception:  # what else it may raise of rows that nobody sent is nobody's
                return True
            return False

        row = bisect.bisect_left(range(1, len(raw)), True, key=lambda n: fails(raw.iloc[:n]))
        one, rule = raw.iloc[row : row + 1], refused.problems[0].text.replace(" these: ", " it: ", 1)
        for column in self.manifest.columns if fails(one) else ():
            if not fails(one.assign(**{column.name: one[column.name].where([False])})):
                return InputError(schema.InvalidValue.create(column.name, rule, row, one[column.name].iloc[0]))
        return None

    def predict_values(self, values: Mapping[str, list[Any]], count: int) -> pd.DataFrame:
        """As `predict`, of values that are of their columns' kinds, in lists: faster, to the same bits.

        Args:
            values: by column: floats with NaN for a number; True, False or None; text or None; and so on. All columns.
            count: of the rows.

        Raises:
            InputError: the preprocessor or the model refuses them.
        """
        kinds = {c.name: c.type for c in self.manifest.columns}
        fitted = self._fitted
        if (
            count
            and isinstance(fitted, FittedChain)
            and fitted.fitted_steps
            and all(_needs_no_conversion(c, kinds[c.name]) for c in fitted.inputs)
        ):
            entered = {
                c.name: pd.array(values[c.name], dtype="str") if c.kind == "text" else np.array(values[c.name], dtype=np.float64)
                for c in fitted.inputs
            }
            entered = {c.name: entered[c.name] if c.kind == "text" else entered[c.name].astype(c.dtype, copy=False) for c in fitted.inputs}
            with contextlib.suppress(InputError):  # which is found below
                with _as_input_errors():
                    output = np.asarray(_check_length(self._model.predict(fitted.transform_columns(entered, count)), count))
                return label_output(self.manifest, output, pd.RangeIndex(count))
        frame = {n: _column(values[n], kind) for n, kind in kinds.items()}
        return self.predict(pd.DataFrame(frame, index=pd.RangeIndex(count), copy=False))


def _check_length(output: Any, rows: int) -> Any:
    """A model's output, one for each row: a frame as it is, all else as an array."""
    output = output if isinstance(output, pd.DataFrame) else np.asarray(output)
    if output.ndim and len(output) != rows:
        raise ValueError(f"predict gave {len(output)} for {rows} rows")
    return output


@contextlib.contextmanager
def _as_input_errors(what: str = "the model cannot answer") -> Iterator[None]:
    """What preprocessor and model, which may be a user's, raise of rows as the rows' fault: a process that serves others goes on."""
    try:
        yield
    except (MemoryError, SweepsError):
        raise
    except Exception as e:
        said = next((line for line in str(e).splitlines() if line.strip()), "")
        raise InputError(Problem("rows", f"{what} these: {type(e).__name__}: {said}".rstrip(": "))) from e


def _unlabelled_output(output: Any, index: pd.Index) -> pd.DataFrame:
    """The answer of a model whose data nobody knows.

    Raises:
        BundleError: it is one value for all rows.
    """
    if not output.ndim:
        raise BundleError(f"predict gave one value for {len(index)} rows")
    if isinstance(output, pd.DataFrame):
        return output.set_axis(index)
    if output.ndim == 2:
        return pd.DataFrame(output, index=index, columns=[f"prediction_{i}" for i in range(output.shape[1])])
    return pd.DataFrame({"prediction": list(output) if output.ndim > 2 else output}, index=index)


def _needs_no_conversion(column: InputColumn, kind: str) -> bool:
    """Whether checked values of a column need only to be put into an array."""
    return (column.kind == "number" and kind in ("integer", "double", "boolean")) or (column.kind == "text" and kind == "string")


def _column(values: list[Any], kind: str) -> Any:
    if kind in ("integer", "double"):
        return np.array(values, dtype=np.float64)
    return pd.array(values, dtype="str") if kind == "string" else pd.Series(values, dtype=object)


def load_bundle(path: str | Path) -> Bundle:
    """Load a bundle, with the code that it carries, once every file of it is seen to be the one that was exported.

    Args:
        path: the bundle's folder; or the folder of a sweep, for the bundle of its winner.

    Raises:
        InputError: there is no bundle at `path`; of a sweep, why it has none.
        BundleError: a file is missing, changed or one too many; or it cannot be loaded.
    """
    path = Path(path).resolve()
    if not path.is_dir():
        raise InputError(Problem(str(path), "there is no such folder"))
    if not (path / integrity.MANIFEST).is_file() and SweepFolder(path).origin.is_file():
        from sweeps.space.saved_space import bundle_of  # here, as a bundle goes without it

        path = bundle_of(path)
    if not (path / integrity.MANIFEST).is_file():
        raise InputError(Problem(str(path), f"not a bundle: it has no {integrity.MANIFEST}"))
    try:
        integrity.use_bundle_code(path, integrity.verify_hashes(path))
    except (integrity.IntegrityError, OSError) as e:
        raise BundleError(str(e)) from None
    return load_verified(path)


def load_verified(path: Path) -> Bundle:
    """The same for a bundle that is verified, and whose code can be imported.

    Raises:
        BundleError: it cannot be loaded.
    """
    manifest = Manifest.read(path)
    data = path / DATA_FOLDER
    fitted: Any = None
    try:
        if (data / step_files.FILE).is_file():
            fitted = step_files.load_chain(data)
        elif (data / CUSTOM_PREPROCESSOR).is_file():
            fitted = old_pickles.loads((data / CUSTOM_PREPROCESSOR).read_bytes())
        model = references.resolve(manifest.load)(str(data / MODEL_FOLDER))
    except Exception as e:  # a user's loader may raise anything
        said = str(e) if isinstance(e, references.RefError | ImportError) else f"{type(e).__name__}: {e}"
        raise BundleError(f"{path}: cannot be loaded: {said}; it was made with {', '.join(manifest.requirements)}") from e
    if not callable(getattr(model, "predict", None)):
        raise BundleError(f"{path}: `{manifest.load}` returned a {type(model).__name__}, which has no predict(DataFrame)")
    return Bundle(path, manifest, model, fitted)


def label_output(manifest: Manifest, output: np.ndarray, index: pd.Index) -> pd.DataFrame:
    """A model's output in the words of the label.

    Args:
        output: binary P(second class) (n,) or probabilities (n, 2); multi-class probabilities (n, k); integer class codes
            (n,) in either; regression (n,).

    Raises:
        BundleError: the output has another shape.
    """
    output = np.asarray(output)
    if output.ndim == 2 and output.shape[1] == 1:
        output = output[:, 0]
    if manifest.task in (None, "regression") or not manifest.classes:
        if output.ndim == 2 and manifest.task is None:
            return pd.DataFrame(output, index=index, columns=[f"prediction_{i}" for i in range(output.shape[1])])
        _check_shape(manifest, output.shape == (len(index),), output, f"({len(index)},)")
        return pd.DataFrame({"prediction": output.astype(np.float64)}, index=index)

    k = len(manifest.classes)
    names = np.empty(k, dtype=object)
    names[:] = manifest.classes
    if output.ndim == 1 and output.dtype.kind in "iub":
        _check_shape(manifest, len(output) == len(index) and bool(((output >= 0) & (output < k)).all()), output, f"codes 0 to {k - 1}")
        return pd.DataFrame({"prediction": _decode_classes(names, output.astype(np.int64))}, index=index)
    if manifest.task == "binary" and output.ndim == 1:
        second = output.astype(np.float64)
        output = np.stack([1.0 - second, second], axis=1)
    _check_shape(manifest, output.shape == (len(index), k), output, f"({len(index)}, {k})")
    # argmax would call the first class at 0.5 for two classes too, as XGBoost's `error` does
    frame = {"prediction": _decode_classes(names, output.argmax(axis=1))}
    frame |= {f"probability_{name}": output[:, i].astype(np.float64) for i, name in enumerate(names)}
    return pd.DataFrame(frame, index=index)


def _decode_classes(names: np.ndarray, codes: np.ndarray) -> Any:
    """Classes by code, as a column of their own type."""
    return pd.Series(names[codes]).infer_objects().to_numpy() if len(codes) else names[codes]


def _check_shape(manifest: Manifest, holds: bool, output: np.ndarray, wanted: str) -> None:
    if not holds:
        shape = f"shape {output.shape}, {output.dtype}"
        raise BundleError(f"`{manifest.load}`: predict gave {shape}; for a {manifest.task} label it must be {wanted}")
