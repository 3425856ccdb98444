"""Write a bundle.

MLflow saves the bundle in a temporary folder, which is moved to its final path after a check in a
fresh process.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import pickle
import platform
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sweeps.core.errors import BundleError, first_line
from sweeps.core.files.atomic_files import write_atomically
from sweeps.core.label_columns import MULTILABEL
from sweeps.data.columns.column_values import json_scalar, tensors_to_arrays
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fitted_chain import FittedChain

from . import check_process, integrity, manifest, schema
from .check import import_pyfunc
from .manifest import Facts, Manifest, Member
from .model_card import model_card
from .model_code import ModelCode, copy_code

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

    from sweeps.data.prepared_store import DatasetInfo

EXAMPLE_ROWS = 5
# MLflow writes the example rows as JSON. If a row has more values than this number, as with large
# images, the example is a single row
EXAMPLE_VALUES = 10_000
CHECK_TIMEOUT = 300.0  # seconds
README = "README.md"
SINGLE = ""  # key of a model that is not a member of an ensemble


@dataclass(frozen=True)
class TrainedModel:
    """A model for a bundle.

    Attributes:
        checkpoint: Folder of the checkpoint.
        fitted: The fitted preprocessor; None if the loop read its own data.
        code: The code that loads the model.
    """

    checkpoint: Path
    fitted: FittedChain | None
    code: ModelCode


def write_bundle(
    target: Path,
    *,
    models: Mapping[str, TrainedModel],
    info: DatasetInfo,
    expected: np.ndarray | None,
    training: Facts,
    members: Sequence[Member] = (),
) -> Path:
    """Write the bundle of a trained model, or of an ensemble.

    The bundle is kept only if a fresh process loads it and reproduces the predictions of training.

    Args:
        target: The bundle's folder. If it already contains a bundle, this bundle is replaced.
        models: The models of an ensemble, by the id of the trial, or a single model with the key
            `SINGLE`.
        info: Information about the data of the models. `info.check` has the raw rows that check the
            bundle; it has no columns if the loop read its own data.
        expected: The model's output for these rows in training, of shape (n,) or (n, k). If None,
            the check does not compare predictions.
        training: Facts of the sweep and the trial; see `Manifest.training`.
        members: The members of an ensemble, for the manifest.

    Returns:
        `target`.

    Raises:
        BundleError: The bundle cannot be written, does not load in a fresh process, or predicts
            other values. No new files remain.
    """
    if target.exists() and not (target / manifest.FILE).is_file():
        raise BundleError(
            f"{target}: already exists and is not a bundle, so sweeps does not replace it; name "
            "another folder"
        )
    codes = [model.code for model in models.values()]
    draft = _draft_manifest(codes[0].load, info, training, members=members)
    if not draft.columns:
        expected = None
    if expected is not None and len(expected) != len(info.check):
        raise BundleError(
            f"{target}: there must be one expected prediction for each row, but there are "
            f"{len(expected)} for {len(info.check)} rows"
        )
    columns = {name: tensors_to_arrays(values) for name, values in info.check.items()}
    raw = pd.DataFrame(columns).reset_index(drop=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder,
        write_atomically(target) as bundle,
    ):
        data_folder = Path(folder, Path(manifest.DATA_FOLDER).name)
        # The models by their folders. A single model has the data folder for itself.
        folders = {
            data_folder / ("" if trial == SINGLE else f"{manifest.MEMBERS_FOLDER}/{trial}"): model
            for trial, model in models.items()
        }
        pickled = {}
        for place, model in folders.items():
            for file, kind in _copy_model(model, place).items():
                path = Path(manifest.DATA_FOLDER, place.relative_to(data_folder), file)
                pickled[path.as_posix()] = kind
        if draft.columns:
            _write_rows(raw, draft.columns, data_folder / manifest.CHECK_ROWS)
        if expected is not None:
            np.save(data_folder / manifest.CHECK_OUTPUT, expected)
        code_files, requirements = copy_code(codes, Path(folder, "code"), list(folders))
        results = {
            "requirements": requirements,
            "pickled": pickled,
            "checked": expected is not None,
        }
        draft = draft.model_copy(update=results)
        _save_model(bundle, target, draft, raw=raw, data_folder=data_folder, code_files=code_files)
        (bundle / integrity.NO_BYTECODE).touch()
        (bundle / README).write_text(model_card(draft), encoding="utf-8")
        draft = draft.model_copy(update={"files": manifest.hash_files(bundle)})
        draft.write(bundle)
        speed = _check_in_fresh_process(bundle, target)
        _add_costs(bundle, draft.model_copy(update={"rows_per_second": speed}))
    return target


def _add_costs(bundle: Path, draft: Manifest) -> None:
    """Write the size of a bundle and the speed of its predictions into its README."""
    size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    (bundle / README).write_text(model_card(draft, size), encoding="utf-8")
    changed = {README: integrity.sha256(bundle / README)}
    draft.model_copy(update={"files": draft.files | changed}).write(bundle)


def _draft_manifest(
    load: str, info: DatasetInfo, training: Facts, *, members: Sequence[Member]
) -> Manifest:
    """Return the manifest without the fields that are known only after files are written."""
    classes = None if info.classes is None else [json_scalar(c) for c in info.classes]
    on_gpus = any(map(_had_gpus, [training, *(m.training for m in members)]))
    return Manifest.model_validate(
        {
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "load": load,
            "label": info.label,
            "task": info.task,
            "classes": classes,
            "positive": classes[1] if info.task == "binary" and classes else None,
            "columns": schema.infer_schema(info.check, info.missing),
            "checked": False,
            "tolerance": manifest.GPU_TOLERANCE if on_gpus else 0.0,
            "training": json.loads(json.dumps(training, default=str)),
            "python": platform.python_version(),
            "requirements": [],
            "pickled": {},
            "members": list(members),
        }
    )


def _had_gpus(training: Facts) -> bool:
    """Return whether the workers of the trial had GPUs, or fractions of a GPU."""
    return bool(((training.get("scaling") or {}).get("resources_per_worker") or {}).get("GPU"))


def _save_model(
    bundle: Path,
    target: Path,
    draft: Manifest,
    *,
    raw: pd.DataFrame,
    data_folder: Path,
    code_files: Sequence[Path],
) -> None:
    """Write MLflow's files, the data and the code into the bundle.

    Raises:
        BundleError: MLflow cannot save the model. The message names `target`, the final folder,
            because `bundle` is only a temporary folder.
    """
    # MLflow must not copy a `uv.lock` from the user's folder
    os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")
    pyfunc = import_pyfunc()
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            pyfunc.save_model(
                path=str(bundle),
                loader_module=integrity.LOADER_MODULE,
                data_path=str(data_folder),
                code_paths=[str(path) for path in code_files],
                signature=_signature(draft) if draft.columns else None,
                input_example=_example(raw) if draft.columns else None,
                pip_requirements=draft.requirements,
            )
    except Exception as e:
        raise BundleError(
            f"{target}: the bundle was not written, because MLflow cannot save it: "
            f"{type(e).__name__}: {first_line(e)}"
        ) from e
    finally:
        logger.setLevel(level)


def copy_checkpoint(source: Path, target: Path) -> Path:
    """Copy a checkpoint of a trainer that has no `load`. Such a trainer cannot have a bundle.

    Args:
        source: Folder of the checkpoint.
        target: Folder of the copy. An older copy is replaced.

    Returns:
        `target`.

    Raises:
        BundleError: The checkpoint does not exist.
    """
    if not source.is_dir():
        raise BundleError(f"{source}: the checkpoint does not exist")
    target.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(target) as part:
        shutil.copytree(source, part)
    return target


def _copy_model(model: TrainedModel, folder: Path) -> dict[str, str]:
    """Write the checkpoint of a model and its fitted preprocessor.

    Args:
        model: The model.
        folder: The folder to create.

    Returns:
        The class of the object in each pickle of the preprocessor, by the pickle's file name.
    """
    if not model.checkpoint.is_dir():
        raise BundleError(f"{model.checkpoint}: the checkpoint does not exist")
    ignored = shutil.ignore_patterns(*model.code.left_out)
    shutil.copytree(model.checkpoint, folder / manifest.MODEL_FOLDER, ignore=ignored)
    if model.fitted is None:
        return {}
    try:
        return step_files.save_chain(model.fitted, folder)
    except (pickle.PicklingError, TypeError, AttributeError) as e:
        raise BundleError(f"the fitted preprocessor cannot be pickled: {e}") from e


def _example(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the first rows, or only the first row if rows are large.

    MLflow stores these rows as the model's input example.
    """
    values = sum(np.size(value) for value in raw.iloc[0]) if len(raw) else 0
    rows = raw.head(EXAMPLE_ROWS if values <= EXAMPLE_VALUES else 1)
    return rows.astype(dict.fromkeys(rows.select_dtypes("timedelta"), str))  # not in JSON


def _write_rows(raw: pd.DataFrame, columns: Sequence[manifest.ColumnSchema], file: Path) -> None:
    """Write raw rows to a Parquet file. Tensors are written as nested lists.

    Raises:
        BundleError: Parquet cannot store the rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        tensors = {
            column.name: schema.tensors_to_arrow(raw[column.name])
            for column in columns
            if column.type == "tensor"
        }
        table = pa.Table.from_pandas(raw.assign(**dict.fromkeys(tensors)))
        for name, values in tensors.items():
            table = table.set_column(table.column_names.index(name), name, values)
        pq.write_table(table, file)
    except (ValueError, TypeError) as e:  # includes Arrow's errors
        raise BundleError(f"the raw rows cannot be stored as Parquet: {e}") from e


def _signature(draft: Manifest) -> ModelSignature:
    """Return the model's MLflow signature. The inputs are the raw columns.

    The outputs are the predictions and the probabilities.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import AnyType

    # MLflow's typed columns refuse int64 for a double, missing values for a long, text for a
    # datetime, digits for a string, and 0 or 1 for a boolean. `AnyType` accepts all of these, and
    # `enforce_schema` checks the values.
    any_type = AnyType()  # type: ignore[no-untyped-call]
    kind = _prediction_type(draft)
    inputs = Schema([ColSpec(any_type, column.name) for column in draft.columns])
    predictions = [ColSpec(kind, name) for name in draft.prediction_names]
    probabilities = [ColSpec("double", name, required=False) for name in draft.probability_names]
    return ModelSignature(inputs, Schema([*predictions, *probabilities]))


def _prediction_type(draft: Manifest) -> str:
    """Return MLflow's name for the type of the predictions."""
    if draft.task == MULTILABEL:
        return "long"
    if not draft.classes:
        return "double"
    types = {type(value) for value in draft.classes}
    if types <= {int, float}:
        return "long" if types == {int} else "double"
    return "boolean" if types == {bool} else "string"


def _check_in_fresh_process(bundle: Path, target: Path) -> float | None:
    """Check the bundle in a new process.

    The process imports only installed packages and the code in the bundle.

    Returns:
        See `sweeps.bundle.check.check`.
    """
    try:
        return check_process.check(bundle, CHECK_TIMEOUT)
    except subprocess.TimeoutExpired:
        problem = (
            "loading the bundle and predicting in a new process took more than "
            f"{CHECK_TIMEOUT:.0f} s"
        )
        raise BundleError(f"{target}: the bundle was not written: {problem}") from None
    except BundleError as e:
        raise BundleError(
            f"{target}: the bundle was not written, because its check in a new process failed: "
            f"{str(e).splitlines()[-1]}"
        ) from RuntimeError(str(e))
