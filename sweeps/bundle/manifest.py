"""`manifest.json`: what a bundle is, how it was made, and the SHA-256 of every file in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweeps.errors import BundleError, InputError, Problem

FILE = "manifest.json"
DATA = "data/sweep"  # where MLflow puts the data folder that `export` hands it
MODEL = "model"
PREPROCESSOR = "preprocessor.pkl"
CHECK_ROWS = "check.parquet"
CHECK_OUTPUT = "check.npy"
PICKLES = (".pkl", ".pickle", ".joblib", ".cloudpickle")

Scalar = bool | int | float | str | None


class Column(BaseModel):
    """A raw feature column, as it was in training.

    Attributes:
        dtype: pandas' name of it.
        type: what values it takes; "any" is passed on as it comes.
        categories: of a categorical column.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    type: Literal["integer", "double", "boolean", "string", "datetime", "category", "any"]
    dtype: str
    categories: list[Scalar] | None = None


class Manifest(BaseModel):
    """The facts of a bundle.

    Attributes:
        load: `module:attr` of the trainer's loader.
        task: "binary", "multiclass", "regression"; None if the sweep named no label.
        classes: the labels' original values, in the order of the model's probabilities.
        columns: the raw features, in their order in training.
        checked: whether predictions made in training were there to compare with.
        made: the sweep's facts: space file, trial, params, preprocessor, scaling, metric, value, data fingerprint, versions, commit.
        pickled: files that run code when they are read: load them only from someone you trust.
        files: path inside the bundle -> SHA-256, of every file but the manifest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Literal[1] = 1
    created: str
    load: str
    label: str | None
    task: Literal["binary", "multiclass", "regression"] | None
    classes: list[Scalar] | None
    columns: list[Column]
    checked: bool
    made: dict[str, Any]
    python: str
    requirements: list[str]
    pickled: list[str]
    files: dict[str, str] = Field(default_factory=dict)

    def write(self, bundle: Path) -> None:
        """Write it into a bundle whose other files are all there."""
        (bundle / FILE).write_text(json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

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

    def verify(self, bundle: Path, under: str = "") -> None:
        """Compare files with the digests taken at export.

        Args:
            under: only files whose path starts with this.

        Raises:
            BundleError: naming the first file that is missing or differs.
        """
        for name, digest in self.files.items():
            if name.startswith(under):
                file = bundle / name
                if not file.is_file():
                    raise BundleError(f"{bundle}: {name} is missing")
                if sha256(file) != digest:
                    raise BundleError(f"{bundle}: {name} is not the file that was exported: its SHA-256 differs from the manifest's")


def sha256(file: Path) -> str:
    """The hex digest of a file."""
    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def digests(bundle: Path) -> dict[str, str]:
    """The digest of every file of a bundle but its manifest, by POSIX path inside it."""
    files = sorted(p for p in bundle.rglob("*") if p.is_file() and p != bundle / FILE)
    return {p.relative_to(bundle).as_posix(): sha256(p) for p in files}
