"""Read and write `manifest.json`, which describes a bundle's model and its origin.

It also lists the SHA-256 of all other files of the bundle.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweeps.core.errors import BundleError, InputError
from sweeps.core.files.file_format import FORMAT, format_problem
from sweeps.core.files.json_files import read_json_object
from sweeps.core.label_columns import MULTILABEL, SEVERAL_COLUMNS, label_columns

from . import integrity

FILE = integrity.MANIFEST
DATA_FOLDER = "data/sweep"  # path in the bundle to which MLflow copies the data folder
MODEL_FOLDER = "model"
MEMBERS_FOLDER = "members"  # has the folders of the members; see `Member.folder`
CHECK_ROWS = "check.parquet"
CHECK_OUTPUT = "check.npy"
# `Manifest.tolerance` of a model that was trained on GPUs. torch may multiply there in TF32, a
# format with 10 bits after the point, which is a precision of about 1e-3.
GPU_TOLERANCE = 1e-3

# JSON object: how a model was trained
Facts = dict[str, Any]
Scalar = bool | int | float | str | None


class ColumnSchema(BaseModel):
    """Name and type that a raw feature column had in training.

    Attributes:
        name: Name of the column.
        type: Kind of values. Values of type "any" are not converted. Each value of a "tensor"
            column is a NumPy array.
        dtype: Pandas' name of the dtype. For a tensor column, NumPy's name of the element type.
        categories: Categories of a categorical column; None for other columns.
        shape: Shape of each value of a tensor column. None for other columns, and if the values may
            have different shapes.
        missing: Texts and numbers that mean a missing value; see `sweeps.data.columns.missing`.
            None for the usual words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    type: Literal["integer", "double", "boolean", "string", "datetime", "category", "tensor", "any"]
    dtype: str
    categories: list[Scalar] | None = None
    shape: list[int] | None = None
    missing: list[Scalar] | None = None


class Member(BaseModel):
    """One model of an ensemble.

    Attributes:
        trial: Id of the trial.
        fold: Number of the fold, starting with 1, if the model was trained on the rows of one fold
            of a cross-validation. Otherwise None.
        weight: Weight of the model in the average. The weights of all members are whole numbers
            without a common divisor.
        columns: Raw features that the member takes, in the order of training. None if it takes all
            columns of the bundle.
        load: The function that loads the member's model. None if it is `load` of the bundle.
        training: Facts of the training: params, preprocessor, scaling, step, seed, and the
            scores on valid and test.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    trial: str = Field(pattern=r"^[0-9]+$")
    fold: int | None = Field(None, ge=1)
    weight: int = Field(ge=1)
    columns: list[str] | None = None
    load: str | None = None
    training: Facts

    @property
    def folder(self) -> str:
        """Name of the folder in `data/sweep/members` with the model and its preprocessor."""
        return self.trial if self.fold is None else f"{self.trial}-fold-{self.fold}"


def weights_of(members: Sequence[Member]) -> dict[str, int]:
    """Return the weight of each trial; see `total_weights`."""
    return total_weights((member.trial, member.weight) for member in members)


def total_weights(models: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the weight of each trial: the sum over its models, without a common divisor.

    Args:
        models: The trial and the weight of each model.
    """
    totals: dict[str, int] = {}
    for trial, weight in models:
        totals[trial] = totals.get(trial, 0) + weight
    divisor = math.gcd(*totals.values()) or 1
    return {trial: total // divisor for trial, total in totals.items()}


def members_text(members: Sequence[Member]) -> str:
    """Return the trials in one line, such as `0007 (weight 2), 0003 (weight 1)`."""
    weights = weights_of(members)
    return ", ".join(f"{trial} (weight {weight})" for trial, weight in weights.items())


class Manifest(BaseModel):
    """Contents of `manifest.json`. The field names are the keys in the file.

    Attributes:
        format: Number of the file format; see `sweeps.core.files.file_format`.
        created: Time of the export, ISO 8601 in UTC.
        load: The trainer's function that loads a model from a checkpoint, in the form
            `module:attr`. In an ensemble, the one of the first member.
        label: Name of the label column, or a list of the names of several columns; None if there is
            none.
        task: "binary", "multiclass" or "regression"; for several columns, "multilabel" or
            "multioutput". None if the sweep has no label.
        classes: Original values of the label, in the order of the model's probabilities. None
            without a label, for regression, and for several columns.
        positive: The positive class of a binary label, which is the last of `classes`. None for
            other labels.
        columns: Raw features in the order of training. Empty if the training loop read its own
            data; the model then gets the rows unchanged.
        checked: True if the export compared the bundle with predictions that were made in training.
        tolerance: Largest allowed difference between a prediction of the bundle and of training,
            for a number x times max(1, |x|). It is 0 for a model that was trained on CPUs. GPUs add
            numbers in another order than CPUs, so it is `GPU_TOLERANCE` if the trial had GPUs.
        training: Facts of the sweep and the trial: space file, trial,
            params, preprocessor, scaling, metric, value, data fingerprint, versions and commit.
        python: Version of Python that wrote the bundle, such as "3.12.1".
        requirements: Pinned requirements of the packages that the bundle needs, such as
            `numpy==2.1.0`.
        pickled: Description of each pickle of a preprocessor, by the file's path in the bundle.
            Reading a pickle can run code.
        files: SHA-256 of every file except `manifest.json` and `manifest.sha256`, by the file's
            path in the bundle.
        members: The models of an ensemble, in the order in which the average adds them up. Empty
            for a single model.
        rows_per_second: Speed of the prediction in one batch on the machine of the export. None if
            the bundle has no rows to measure it on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: int = Field(FORMAT, ge=FORMAT, le=FORMAT)
    created: str
    load: str
    label: str | list[str] | None
    task: Literal["binary", "multiclass", "regression", "multilabel", "multioutput"] | None
    classes: list[Scalar] | None
    positive: Scalar | None = None
    columns: list[ColumnSchema]
    checked: bool
    tolerance: float = 0.0
    training: Facts
    python: str
    requirements: list[str]
    pickled: dict[str, str]
    files: dict[str, str] = Field(default_factory=dict)
    members: list[Member] = Field(default_factory=list)
    rows_per_second: float | None = None

    @property
    def prediction_names(self) -> list[str]:
        """Names of the columns with predictions: `prediction`, or one for each label column."""
        if self.task not in SEVERAL_COLUMNS:
            return ["prediction"]
        return [f"prediction_{name}" for name in label_columns(self.label)]

    @property
    def probability_names(self) -> list[str]:
        """Names of the columns with probabilities, which a model may return."""
        names = label_columns(self.label) if self.task == MULTILABEL else self.classes or ()
        return [f"probability_{name}" for name in names]

    def write(self, bundle: Path) -> None:
        """Write the manifest and its hash.

        All other files of the bundle must be complete before this call.
        """
        content = json.dumps(self.model_dump(), indent=2, ensure_ascii=False)
        (bundle / FILE).write_text(content + "\n", encoding="utf-8")
        integrity.write_hashes(bundle)

    def of_member(self, member: Member) -> Manifest:
        """Return the manifest of a member of this ensemble, as if it had a bundle of its own."""
        columns = self.columns
        if member.columns is not None:
            by_name = {column.name: column for column in columns}
            columns = [by_name[name] for name in member.columns]
        changes = {
            "columns": columns,
            "load": member.load or self.load,
            "training": self.training | member.training,
            "members": [],
        }
        return self.model_copy(update=changes)

    @classmethod
    def read(cls, bundle: Path) -> Manifest:
        """Read the manifest of a bundle.

        Args:
            bundle: The bundle's folder.

        Returns:
            The manifest.

        Raises:
            InputError: The folder does not exist, is not a bundle, or has another format than this
                version reads.
            BundleError: The manifest is damaged.
        """
        require_bundle(bundle)
        file = bundle / FILE
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as e:
            first = e.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise BundleError(f"{file}: {place}: {first['msg']}") from None
        except (OSError, UnicodeDecodeError) as e:
            raise BundleError(f"{file}: cannot be read: {e}") from None


def require_bundle(folder: Path) -> None:
    """Check that a folder has the manifest of a bundle, in the format that this version reads.

    A manifest that is no JSON object is not refused here. Its damage is reported when the bundle is
    verified or read.

    Raises:
        InputError: The folder does not exist, has no manifest, or has another format.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "the folder does not exist")
    if not (folder / FILE).is_file():
        raise InputError(str(folder), f"is not a bundle, because the folder has no {FILE}")
    content = read_json_object(folder / FILE)
    if content is None:
        return
    if (problem := format_problem(folder / FILE, content)) is not None:
        raise InputError(problem)


def hash_files(bundle: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a bundle by path, except the manifest and its hash."""
    return {name: integrity.sha256(bundle / name) for name in integrity.files_of(bundle)}
