"""Write a bundle: stage, save as MLflow's pyfunc, check in a fresh process, and only then put it in its place."""

from __future__ import annotations

import datetime
import json
import logging
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeps.bundle import integrity, manifest, schema
from sweeps.bundle.check import import_pyfunc
from sweeps.bundle.manifest import Manifest
from sweeps.bundle.requirements import find_requirements, pickled_modules, pin_versions
from sweeps.core import references
from sweeps.core.errors import BundleError
from sweeps.data.columns import is_tensor, tensors_to_arrays
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fitted_chain import FittedChain

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

CHECK_MODULE = "sweeps.bundle.check"  # and all that it imports: what a bundle needs of sweeps
# Of sweeps every bundle carries what any bundle may need: of two that one process loads, the first brings it for both
SHIPPED_MODULES = (
    CHECK_MODULE,
    "sweeps.data.preprocessing.ray_steps",
    "sweeps.trial",
    "sweeps.trainers.torch_tabular",
    "sweeps.trainers.xgboost",
)
EXAMPLE_ROWS = 5
# MLflow writes its example as JSON: of rows with more values than this, such as large images, it gets one
EXAMPLE_VALUES = 10_000
CHECK_TIMEOUT = 300.0
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "tests", "*.egg-info")


def export(
    target: Path,
    *,
    checkpoint: Path,
    fitted: Any,
    load: str,
    roots: Sequence[Path],
    label: str | None,
    task: str | None,
    classes: Sequence[Any] | None,
    raw: pd.DataFrame | None,
    expected: np.ndarray | None,
    made: dict[str, Any],
    code: Sequence[Path] = (),
) -> Path:
    """Write the bundle of a trained model, if it answers as the model did.

    Args:
        target: the bundle's folder; an older bundle there is replaced.
        checkpoint: the folder that `load` reads.
        fitted: the fitted preprocessor (`transform(DataFrame) -> DataFrame`, picklable), None without one.
        load: `module:attr` of the trainer's loader.
        roots: folders on which to look for its module, before `sys.path`.
        classes: the labels' original values, in the order of the model's codes.
        raw: raw feature rows without the label, dtypes and column order as in training; at least one. None where the loop read
            its own data: then the bundle has no example, and must just load.
        expected: the model's output for `raw` in training, (n,) or (n, k); None if unknown, then the bundle must just predict.
        made: facts for the manifest.
        code: further modules of the user to ship.

    Returns:
        `target`.

    Raises:
        BundleError: it cannot be written, does not load in a fresh process, or answers otherwise. Nothing is left behind.
    """
    target = Path(target)
    if target.exists() and not (target / manifest.FILE).is_file():
        raise BundleError(f"{target}: is there, and is not a bundle that could be replaced")
    if raw is None:
        expected = None
    elif expected is not None and len(expected) != len(raw):
        raise BundleError(f"{target}: {len(expected)} expected predictions for {len(raw)} rows")
    described = [] if raw is None else schema.infer_schema(raw)
    if raw is not None:
        arrays = {n: tensors_to_arrays(raw[n]) for n in raw.columns if is_tensor(raw[n])}
        raw = raw.assign(**arrays).reset_index(drop=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        work = Path(folder)
        left_out = references.literal(references.parse(load)[0], "RESUME_FILES", [Path(r) for r in roots]) or ()
        data, named = _stage_data(
            work / Path(manifest.DATA_FOLDER).name, Path(checkpoint), tuple(left_out), fitted, raw, described, expected
        )
        shipped, requirements = _stage_code(work / "code", load, roots, code, data)
        facts = Manifest(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            load=load,
            label=label,
            task=task,  # type: ignore[arg-type]
            classes=None if classes is None else [schema.json_scalar(c) for c in classes],
            columns=described,
            checked=expected is not None,
            made=json.loads(json.dumps(made, default=str)),
            python=platform.python_version(),
            requirements=requirements,
            pickled={},
        )
        bundle = work / "bundle"
        with _quiet_mlflow() as pyfunc, _mlflow_errors(target):
            pyfunc.save_model(
                path=str(bundle),
                loader_module=integrity.LOADER_MODULE,
                data_path=str(data),
                code_paths=[str(p) for p in shipped],
                signature=None if raw is None else _signature(facts),
                input_example=None if raw is None else _example(raw),
                pip_requirements=requirements,
            )
        (bundle / integrity.NO_BYTECODE).touch()
        files = manifest.hash_files(bundle)
        pickled = {name: "a file of the checkpoint" for name in files if manifest.is_pickle(bundle / name)} | named
        facts.model_copy(update={"files": files, "pickled": pickled}).write(bundle)
        _check_in_fresh_process(bundle, target)
        _replace(bundle, target, work / "old")
    return target


def copy_checkpoint(source: Path, target: Path) -> Path:
    """Copy a checkpoint of a trainer that has no `load`, which no bundle can be made of.

    Args:
        source: the checkpoint's folder.
        target: the copy's; an older one there is replaced.

    Returns:
        `target`.

    Raises:
        BundleError: the checkpoint is gone.
    """
    if not source.is_dir():
        raise BundleError(f"{source}: the checkpoint is gone")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        copy = Path(folder, "copy")
        shutil.copytree(source, copy)
        _replace(copy, target, Path(folder, "old"))
    return target


def _stage_data(
    folder: Path,
    checkpoint: Path,
    left_out: tuple[str, ...],
    fitted: Any,
    raw: pd.DataFrame | None,
    described: Sequence[manifest.ColumnSchema],
    expected: np.ndarray | None,
) -> tuple[Path, dict[str, str]]:
    """What the loader reads, in one folder; and each pickle of the preprocessor -> the class of what is in it."""
    if not checkpoint.is_dir():
        raise BundleError(f"{checkpoint}: the checkpoint is gone")
    shutil.copytree(checkpoint, folder / manifest.MODEL_FOLDER, ignore=shutil.ignore_patterns(*left_out))
    pickled: dict[str, str] = {}
    try:
        if isinstance(fitted, FittedChain):
            pickled = step_files.save_chain(fitted, folder)
        elif fitted is not None:
            (folder / manifest.CUSTOM_PREPROCESSOR).write_bytes(pickle.dumps(fitted))
            pickled = {manifest.CUSTOM_PREPROCESSOR: f"{type(fitted).__module__}.{type(fitted).__qualname__}"}
    except (pickle.PicklingError, TypeError, AttributeError) as e:
        raise BundleError(f"the fitted preprocessor cannot be pickled: {e}") from e
    try:
        if raw is not None:
            _write_rows(raw, described, folder / manifest.CHECK_ROWS)
    except (ValueError, TypeError) as e:  # Arrow's errors are among them
        raise BundleError(f"the raw rows cannot be stored as Parquet: {e}") from e
    if expected is not None:
        np.save(folder / manifest.CHECK_OUTPUT, np.asarray(expected))
    return folder, {f"{manifest.DATA_FOLDER}/{name}": kind for name, kind in pickled.items()}


def _example(raw: pd.DataFrame) -> pd.DataFrame:
    """The rows that MLflow keeps as an example."""
    values = sum(np.size(value) for value in raw.iloc[0]) if len(raw) else 0
    return raw.head(EXAMPLE_ROWS if values <= EXAMPLE_VALUES else 1)


@contextmanager
def _mlflow_errors(target: Path) -> Iterator[None]:
    """An error of MLflow's as ours, in one line."""
    try:
        yield
    except Exception as e:
        said = next((line for line in str(e).splitlines() if line.strip()), "")
        raise BundleError(f"{target}: not written: MLflow cannot save it: {type(e).__name__}: {said}".rstrip(": ")) from e


def _write_rows(raw: pd.DataFrame, described: Sequence[manifest.ColumnSchema], file: Path) -> None:
    """Store raw rows as Parquet, tensors as nested lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tensors = {column.name: schema.tensors_to_arrow(raw[column.name]) for column in described if column.type == "tensor"}
    table = pa.Table.from_pandas(raw.assign(**dict.fromkeys(tensors)))
    for name, values in tensors.items():
        table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table, file)


def _stage_code(folder: Path, load: str, roots: Sequence[Path], code: Sequence[Path], data: Path) -> tuple[list[Path], list[str]]:
    """Copies of the local modules that loading takes, and the requirements for the rest."""
    extra = [Path(p).resolve() for p in code]
    modules = {CHECK_MODULE, references.parse(load)[0], *(p.stem for p in extra if p.suffix == ".py" or p.is_dir())}
    for file in data.glob("*.pkl"):
        modules |= pickled_modules(file.read_bytes())
    if (data / step_files.FILE).is_file():
        modules |= {references.parse(name)[0] for name in step_files.function_references(data)}
    found = find_requirements(modules, [*(Path(r).resolve() for r in roots), *(p.parent for p in extra)])
    folder.mkdir()
    shutil.copyfile(integrity.__file__, folder / f"{integrity.LOADER_MODULE}.py")
    ours = {
        f"{Path(integrity.SWEEPS_COPY).name}/{name}": file
        for name, file in {**find_requirements(SHIPPED_MODULES).sweeps_modules, **found.sweeps_modules}.items()
    }
    for name, source in {**ours, **found.local_modules, **{p.name: p for p in extra}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=IGNORED)
        else:
            shutil.copyfile(source, folder / name)
    return sorted(folder.iterdir()), pin_versions(found.packages)


def _signature(facts: Manifest) -> ModelSignature:
    """Raw columns in, `prediction` and probabilities out."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import AnyType

    # MLflow refuses int64 where a double is declared, a gap where a long is, text where a datetime is, digits in a column of text, 0 and 1
    # in one of truth: `any` takes them, and `conform` checks.
    inputs: list[Any] = [ColSpec(AnyType(), column.name) for column in facts.columns]  # MLflow's list is invariant
    outputs: list[Any] = [ColSpec(_prediction_type(facts), "prediction")]
    outputs += [ColSpec("double", f"probability_{c}", required=False) for c in facts.classes or ()]
    return ModelSignature(Schema(inputs), Schema(outputs))


def _prediction_type(facts: Manifest) -> str:
    """MLflow's name for the type of `prediction`."""
    kinds = {type(c) for c in facts.classes or (0.0,)}
    if kinds <= {int, float}:
        return "long" if kinds == {int} else "double"
    return "boolean" if kinds == {bool} else "string"


@contextmanager
def _quiet_mlflow() -> Iterator[Any]:
    """`mlflow.pyfunc` without chatter, and blind to a uv.lock in the user's folder, which it would ship."""
    pyfunc, logger, name = import_pyfunc(), logging.getLogger("mlflow"), "MLFLOW_UV_AUTO_DETECT"
    level, before = logger.level, os.environ.get(name)
    logger.setLevel(logging.ERROR)
    os.environ[name] = "false"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield pyfunc
    finally:
        logger.setLevel(level)
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _check_in_fresh_process(bundle: Path, target: Path) -> None:
    """Run the check in a process that has nothing but the installed packages and the code that the bundle ships."""
    code = os.pathsep.join([str(bundle / integrity.SWEEPS_COPY), str(bundle / integrity.CODE_FOLDER)])
    env = {
        **os.environ,
        "PYTHONPATH": code,
        "PYTHONDONTWRITEBYTECODE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-m", "sweeps.bundle.check", str(bundle)]
    try:
        # a session of its own: a Ctrl-C in the terminal is meant for the sweep, which finishes its export
        done = subprocess.run(
            command,
            cwd=bundle / integrity.CODE_FOLDER,
            env=env,
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise BundleError(f"{target}: not written: it took over {CHECK_TIMEOUT:.0f} s to load and predict in a fresh process") from None
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise BundleError(f"{target}: not written: {said.splitlines()[-1]}") from RuntimeError(said)


def _replace(bundle: Path, target: Path, old: Path) -> None:
    """Move a finished folder to its place, and what was there out of the way."""
    if target.exists():
        os.rename(target, old)
    os.rename(bundle, target)
