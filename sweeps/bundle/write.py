"""Write a bundle.

MLflow saves the bundle in a temporary folder, which is moved to its final path after a check in a
fresh process.
"""

from __future__ import annotations

import datetime
import functools
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeps.bundle import check_process, integrity, manifest, schema
from sweeps.bundle.check import import_pyfunc
from sweeps.bundle.manifest import Manifest, Member
from sweeps.bundle.model_card import model_card
from sweeps.bundle.requirements import (
    find_requirements,
    owners_of_packages,
    pickled_modules,
    pin_versions,
)
from sweeps.core import references
from sweeps.core.atomic_files import staged
from sweeps.core.errors import BundleError, first_line
from sweeps.core.label_columns import MULTILABEL, SEVERAL, Label, label_columns
from sweeps.data.column_values import is_tensor, json_scalar, tensors_to_arrays
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fitted_chain import FittedChain
from sweeps.space.trainer_definition import definition_of
from sweeps.space.trainer_section import trainer_modules

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

CHECK_MODULE = (
    "sweeps.bundle.check"  # this module and its imports are the part of sweeps that a bundle needs
)
# Every bundle contains these modules, even if it does not need them. If a process loads two
# bundles, it imports the modules of sweeps only from the first bundle, and the second bundle may
# need more of them
SHIPPED_MODULES = (
    CHECK_MODULE,
    "sweeps.trial",
    *trainer_modules(),
)
EXAMPLE_ROWS = 5
# MLflow writes the example rows as JSON. If a row has more values than this number, as with large
# images, the example is a single row
EXAMPLE_VALUES = 10_000
CHECK_TIMEOUT = 300.0
README = "README.md"
SINGLE = ""  # key of a model that is not a member of an ensemble
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "tests", "*.egg-info")


@dataclass(frozen=True)
class TrainedModel:
    """A model for a bundle.

    Attributes:
        checkpoint: folder of the checkpoint.
        fitted: the fitted preprocessor, or None. It must be picklable and have a method
            `transform(DataFrame) -> DataFrame`.
    """

    checkpoint: Path
    fitted: Any


@dataclass(frozen=True)
class ModelCode:
    """The code that a bundle needs to load its models.

    Attributes:
        load: the trainer's function that loads a model from a checkpoint, in the form
            `module:attr`.
        roots: folders that are searched for the user's modules before `sys.path`.
        left_out: glob patterns of files in the checkpoint that are not copied. The `resume_files`
            of the module of `load` are never copied.
        imports: names of other modules that `load` may import. The bundle also contains the user's
            modules among them, and requires the packages among them.
    """

    load: str
    roots: Sequence[Path]
    left_out: Sequence[str] = ()
    imports: Sequence[str] = ()

    @property
    def module(self) -> str:
        """Name of the module of `load`."""
        return references.parse(self.load)[0]


@dataclass(frozen=True)
class ModelData:
    """Facts about the data for a bundle's manifest, and the rows that check the bundle.

    Attributes:
        label: see `Splits.label`.
        task: see `Splits.task`.
        classes: original values of the label, in the order of the model's class codes. See
            `Splits.classes`.
        raw: at least one row of raw features without the label, as in training. None if the loop
            read its own data.
        expected: the model's output for `raw` in training, of shape (n,) or (n, k). If None, the
            check does not compare predictions.
        missing: see `Splits.missing`.
    """

    label: Label | None
    task: str | None
    classes: Sequence[Any] | None
    raw: pd.DataFrame | None
    expected: np.ndarray | None
    missing: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def write_bundle(
    target: Path,
    *,
    models: Mapping[str, TrainedModel],
    code: ModelCode,
    data: ModelData,
    training: dict[str, Any],
    members: Sequence[Member] = (),
) -> Path:
    """Write the bundle of a trained model, or of an ensemble.

    The bundle is kept only if a fresh process loads it and reproduces the predictions of training.

    Args:
        target: the bundle's folder. If it already contains a bundle, this bundle is replaced.
        models: the models of an ensemble, by the id of the trial, or a single model with the key
            `SINGLE`.
        code: the code that loads the models.
        data: the data of the models.
        training: facts of the sweep and the trial; see `Manifest.training`.
        members: what the manifest says about the models of an ensemble.

    Returns:
        `target`.

    Raises:
        BundleError: the bundle cannot be written, does not load in a fresh process, or predicts
            other values. No new files remain.
    """
    if target.exists() and not (target / manifest.FILE).is_file():
        raise BundleError(
            f"{target}: already exists and is not a bundle, so sweeps does not replace it; name "
            "another folder"
        )
    if data.raw is not None and data.expected is not None and len(data.expected) != len(data.raw):
        raise BundleError(
            f"{target}: there must be one expected prediction for each row, but there are "
            f"{len(data.expected)} for {len(data.raw)} rows"
        )
    facts = _draft_manifest(code.load, data, training, members=members)
    resume_files = definition_of(code.module, code.roots).resume_files
    code = replace(code, left_out=(*code.left_out, *resume_files))
    _build(target, facts, models, code=code, data=data)
    return target


def _draft_manifest(
    load: str, data: ModelData, training: dict[str, Any], *, members: Sequence[Member]
) -> Manifest:
    """Return the manifest without the fields that are known only after files are written."""
    label = data.label
    classes = None if data.classes is None else [json_scalar(c) for c in data.classes]
    on_gpus = any(map(_had_gpus, [training, *(m.training for m in members)]))
    facts: dict[str, Any] = {
        "load": load,
        "label": list(label) if isinstance(label, tuple) else label,
        "task": data.task,
        "classes": classes,
        "positive": classes[1] if data.task == "binary" and classes else None,
        "columns": [] if data.raw is None else schema.infer_schema(data.raw, data.missing),
        "checked": data.raw is not None and data.expected is not None,
        "tolerance": manifest.GPU_TOLERANCE if on_gpus else 0.0,
        "training": json.loads(json.dumps(training, default=str)),
        "members": list(members),
    }
    return Manifest(
        **facts,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        python=platform.python_version(),
        requirements=[],
        pickled={},
    )


def _had_gpus(training: dict[str, Any]) -> bool:
    """Return whether the workers of the trial had GPUs, or fractions of a GPU."""
    return bool(((training.get("scaling") or {}).get("resources_per_worker") or {}).get("GPU"))


def _build(
    target: Path,
    facts: Manifest,
    models: Mapping[str, TrainedModel],
    *,
    code: ModelCode,
    data: ModelData,
) -> None:
    """Write and check a bundle; see `write_bundle`. `facts` is a draft of the manifest."""
    raw = data.raw
    if raw is not None:
        raw = raw.assign(
            **{n: tensors_to_arrays(raw[n]) for n in raw.columns if is_tensor(raw[n])}
        ).reset_index(drop=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder,
        staged(target) as bundle,
    ):
        data_folder = Path(folder, Path(manifest.DATA_FOLDER).name)
        pickled: dict[str, str] = {}
        folders = []
        for trial, model in models.items():
            name = "" if trial == SINGLE else f"{manifest.MEMBERS_FOLDER}/{trial}"
            place = f"{manifest.DATA_FOLDER}/{name}".rstrip("/")
            folders.append(data_folder / name)
            pickled |= _stage_model(folders[-1], model, code.left_out, place=place)
        if raw is not None:
            _write_rows(raw, facts.columns, data_folder / manifest.CHECK_ROWS)
        if facts.checked:
            np.save(data_folder / manifest.CHECK_OUTPUT, np.asarray(data.expected))
        code_files, requirements = _stage_code(Path(folder, "code"), code, folders)
        facts = facts.model_copy(update={"requirements": requirements, "pickled": pickled})
        _save_model(bundle, target, facts, raw=raw, data_folder=data_folder, code_files=code_files)
        (bundle / integrity.NO_BYTECODE).touch()
        (bundle / README).write_text(model_card(facts), encoding="utf-8")
        facts = facts.model_copy(update={"files": manifest.hash_files(bundle)})
        facts.write(bundle)
        speed = _check_in_fresh_process(bundle, target)
        facts.model_copy(update={"rows_per_second": speed}).write(bundle)


def _save_model(
    bundle: Path,
    target: Path,
    facts: Manifest,
    *,
    raw: pd.DataFrame | None,
    data_folder: Path,
    code_files: Sequence[Path],
) -> None:
    """Write MLflow's files, the data and the code into the bundle.

    Raises:
        BundleError: MLflow cannot save the model. The message names `target`, the final folder,
            because `bundle` is only a temporary folder.
    """
    os.environ.setdefault(
        "MLFLOW_UV_AUTO_DETECT", "false"
    )  # MLflow must not copy a `uv.lock` from the user's folder
    pyfunc, logger = import_pyfunc(), logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            pyfunc.save_model(
                path=str(bundle),
                loader_module=integrity.LOADER_MODULE,
                data_path=str(data_folder),
                code_paths=[str(path) for path in code_files],
                signature=None if raw is None else _signature(facts),
                input_example=None if raw is None else _example(raw),
                pip_requirements=facts.requirements,
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
        source: folder of the checkpoint.
        target: folder of the copy. An older copy is replaced.

    Returns:
        `target`.

    Raises:
        BundleError: the checkpoint does not exist.
    """
    if not source.is_dir():
        raise BundleError(f"{source}: the checkpoint does not exist")
    target.parent.mkdir(parents=True, exist_ok=True)
    with staged(target) as part:
        shutil.copytree(source, part)
    return target


def _stage_model(
    folder: Path, model: TrainedModel, left_out: Sequence[str], *, place: str
) -> dict[str, str]:
    """Write the checkpoint of a model and its fitted preprocessor.

    Args:
        folder: the folder to create.
        model: the model.
        left_out: glob patterns of the checkpoint's files that are not copied.
        place: path that the folder will have in the bundle.

    Returns:
        The class of the object in each pickle of the preprocessor, by the pickle's path in the
        bundle.
    """
    checkpoint, fitted = model.checkpoint, model.fitted
    if not checkpoint.is_dir():
        raise BundleError(f"{checkpoint}: the checkpoint does not exist")
    shutil.copytree(
        checkpoint, folder / manifest.MODEL_FOLDER, ignore=shutil.ignore_patterns(*left_out)
    )
    pickled: dict[str, str] = {}
    try:
        if isinstance(fitted, FittedChain):
            pickled = step_files.save_chain(fitted, folder)
        elif fitted is not None:
            (folder / manifest.CUSTOM_PREPROCESSOR).write_bytes(pickle.dumps(fitted))
            cls = type(fitted)
            pickled = {manifest.CUSTOM_PREPROCESSOR: f"{cls.__module__}.{cls.__qualname__}"}
    except (pickle.PicklingError, TypeError, AttributeError) as e:
        raise BundleError(f"the fitted preprocessor cannot be pickled: {e}") from e
    return {f"{place}/{name}": kind for name, kind in pickled.items()}


def _example(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the first rows, or only the first row if rows are large.

    MLflow stores these rows as the model's input example.
    """
    values = sum(np.size(value) for value in raw.iloc[0]) if len(raw) else 0
    rows = raw.head(EXAMPLE_ROWS if values <= EXAMPLE_VALUES else 1)
    return rows.astype(dict.fromkeys(rows.select_dtypes("timedelta"), str))  # JSON has none


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


@functools.cache
def find_shipped_modules() -> dict[str, Path]:
    """Return the files of sweeps that every bundle contains. The first call takes a second."""
    owners_of_packages()
    return find_requirements(SHIPPED_MODULES).sweeps_modules


def _stage_code(
    folder: Path, code: ModelCode, data: Sequence[Path]
) -> tuple[list[Path], list[str]]:
    """Copy the local modules that are needed to load the bundle.

    Args:
        folder: the folder to create.
        code: see `write_bundle`.
        data: the folders of the models, with their preprocessors.

    Returns:
        The copied files and folders, and the pinned requirements of the packages that must be
        installed.
    """
    modules = {CHECK_MODULE, code.module, *code.imports}
    for place in data:
        for file in place.glob("*.pkl"):
            modules |= pickled_modules(file.read_bytes())
        if (place / step_files.FILE).is_file():
            modules |= {references.parse(name)[0] for name in step_files.function_references(place)}
    needed = find_requirements(modules, [Path(r).resolve() for r in code.roots])
    folder.mkdir()
    shutil.copyfile(integrity.__file__, folder / f"{integrity.LOADER_MODULE}.py")
    own_files = find_shipped_modules() | needed.sweeps_modules
    own_files = {
        f"{Path(integrity.SWEEPS_COPY).name}/{name}": file for name, file in own_files.items()
    }
    for name, source in (own_files | needed.local_modules).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=IGNORED)
        else:
            shutil.copyfile(source, folder / name)
    return sorted(folder.iterdir()), pin_versions(needed.packages)


def _signature(facts: Manifest) -> ModelSignature:
    """Return the model's MLflow signature. The inputs are the raw columns.

    The outputs are the predictions and the probabilities.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import AnyType

    # MLflow's typed columns refuse int64 for a double, missing values for a long, text for a
    # datetime, digits for a string, and 0 or 1 for a boolean. `AnyType` accepts all of these, and
    # `enforce_schema` checks the values.
    any_type: Any = AnyType()  # type: ignore[no-untyped-call]
    inputs: list[Any] = [
        ColSpec(any_type, column.name) for column in facts.columns
    ]  # `Any`, because MLflow's list type is invariant
    several = label_columns(facts.label) if facts.task in SEVERAL else ()
    kind = "long" if facts.task == MULTILABEL else _prediction_type(facts)
    outputs: list[Any] = [
        ColSpec(kind, name)
        for name in ([f"prediction_{column}" for column in several] or ["prediction"])
    ]
    with_probability = several if facts.task == MULTILABEL else facts.classes or ()
    outputs += [
        ColSpec("double", f"probability_{name}", required=False) for name in with_probability
    ]
    return ModelSignature(Schema(inputs), Schema(outputs))


def _prediction_type(facts: Manifest) -> str:
    """Return MLflow's name for the type of `prediction`."""
    kinds = {type(c) for c in facts.classes or (0.0,)}
    if kinds <= {int, float}:
        return "long" if kinds == {int} else "double"
    return "boolean" if kinds == {bool} else "string"


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
