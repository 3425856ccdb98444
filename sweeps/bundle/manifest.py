"""`manifest.json`: what a bundle is, how it was made, and the SHA-256 of every file in it."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sweeps.bundle import integrity
from sweeps.core.errors import BundleError, InputError, Problem

FILE = integrity.MANIFEST
DATA_FOLDER = "data/sweep"  # where MLflow puts the data folder that `export` hands it
MODEL_FOLDER = "model"
CUSTOM_PREPROCESSOR = "preprocessor.pkl"  # a preprocessor that is no chain of `sweeps.data`
CHECK_ROWS = "check.parquet"
CHECK_OUTPUT = "check.npy"
GZIP_MAGIC = b"\x1f\x8b"

OLD_LOADERS = ("trainers.xgboost:load", "trainers.torch_tabular:load")

Scalar = bool | int | float | str | None


class ColumnSchema(BaseModel):
    """A raw feature column, as it was in training.

    Attributes:
        dtype: pandas' name of it; of a tensor NumPy's name of its elements.
        type: what values it takes; "any" is passed on as it comes. Each cell of a "tensor" is a NumPy array.
        categories: of a categorical column.
        shape: of each cell of a tensor; None if cells may differ in shape.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    type: Literal["integer", "double", "boolean", "string", "datetime", "category", "tensor", "any"]
    dtype: str
    categories: list[Scalar] | None = None
    shape: list[int] | None = None


class Manifest(BaseModel):
    """The facts of a bundle.

    Attributes:
        load: `module:attr` of the trainer's loader.
        task: "binary", "multiclass", "regression"; None if the sweep named no label.
        classes: the labels' original values, in the order of the model's probabilities.
        columns: the raw features, in their order in training; none if the loop read its own data: then the model gets rows as they come.
        checked: whether predictions made in training were there to compare with.
        made: the sweep's facts: space file, trial, params, preprocessor, scaling, metric, value, data fingerprint, versions, commit.
        pickled: each file that is a pickle, and so can run code when it is read -> what is in it.
        files: path inside the bundle -> SHA-256, of every file but the manifest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal[2, 3] = 3
    created: str
    load: str
    label: str | None
    task: Literal["binary", "multiclass", "regression"] | None
    classes: list[Scalar] | None
    columns: list[ColumnSchema]
    checked: bool
    made: dict[str, Any]
    python: str
    requirements: list[str]
    pickled: dict[str, str]
    files: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, found: Any) -> Any:
        """Format 2 named our trainers `trainers.NAME`; since format 3 that name is free for a package of the user's."""
        if isinstance(found, dict) and found.get("format") == 2 and found.get("load") in OLD_LOADERS:
            return found | {"load": f"sweeps.{found['load']}"}
        return found

    def write(self, bundle: Path) -> None:
        """Write it into a bundle whose other files are all there, and seal that."""
        (bundle / FILE).write_text(json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        integrity.write_hashes(bundle)

    @classmethod
    def read(cls, bundle: Path) -> Manifest:
        """The manifest of a bundle.

        Raises:
            InputError: there is no such folder, or it is not a bundle.
            BundleError: the manifest is broken.
        """
        if not bundle.is_dir():
            raise InputError(Problem(str(bundle), "there is no such folder"))
        file = bundle / FILE
        if not file.is_file():
            raise InputError(Problem(str(bundle), f"not a bundle: it has no {FILE}"))
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as e:
            first = e.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise BundleError(f"{file}: {place}: {first['msg']}") from None
        except (OSError, UnicodeDecodeError) as e:
            raise BundleError(f"{file}: cannot be read: {e}") from None


def hash_files(bundle: Path) -> dict[str, str]:
    """The SHA-256 of every file of a bundle but its seal's, by POSIX path inside it."""
    return {name: integrity.sha256(bundle / name) for name in integrity.files_of(bundle)}


def is_pickle(file: Path) -> bool:
    """Whether a file is a pickle, by its suffix or by its first bytes, or holds one, as torch's ZIP files and NumPy's objects do."""
    if file.suffix.lower() in (".pkl", ".pickle", ".joblib"):  # compressed, or of a protocol that cannot be told from text
        return True
    with open(file, "rb") as f:
        head = f.read(4096)
    if head.startswith(GZIP_MAGIC):  # as joblib compresses
        with contextlib.suppress(OSError, EOFError, zlib.error), gzip.open(file) as f:
            head = f.read(4096)
    if _starts_pickle(head):
        return True
    if head[:4] != b"PK\x03\x04" or not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as packed:
        for name in packed.namelist():
            with contextlib.suppress(NotImplementedError, RuntimeError, zipfile.BadZipFile), packed.open(name) as f:
                if name.endswith("data.pkl") or _starts_pickle(f.read(4096)):
                    return True
    return False


def _starts_pickle(head: bytes) -> bool:
    """Whether a file that begins so is a pickle of protocol 2 or later, or an array of NumPy's that holds one: of objects."""
    if head.startswith(b"\x93NUMPY"):
        return re.search(rb"'\|?O\d*'", head[:4096]) is not None
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
