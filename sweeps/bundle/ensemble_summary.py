"""Read which ensembles a sweep's folder has, for `show` and the report.

The folder may come from a stranger, so no code in it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweeps.core.json_files import Number, Text, is_text, read_json_object
from sweeps.core.sweep_folder import MANIFEST, SweepFolder

Id = Annotated[str, Field(pattern=r"^[0-9]{4,9}$")]


class _Single(BaseModel):
    trial: Id
    value: Number
    test: Number | None


class _About(BaseModel):
    single: _Single


class _Training(BaseModel):
    metric: Text
    value: Number
    test: Number | None
    ensemble: _About


class _Member(BaseModel):
    trial: Id
    weight: Annotated[int, Field(ge=1, le=10**6)]


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="ignore")
    training: _Training
    members: Annotated[list[_Member], Field(min_length=1)]


class EnsembleSummary(BaseModel):
    """An ensemble that a sweep has exported.

    Attributes:
        path: path of the bundle's folder. If the sweep is in a store and was copied from there, the
            folder's address in the store.
        metric: metric of the objective.
        value: score of the ensemble on valid.
        test: score of the ensemble on test; None if it is not known.
        single: id of the best single model's trial.
        single_value: score of the best single model on valid.
        single_test: score of the best single model on test; None if it is not known.
        members: weight of each member, by the id of its trial.
    """

    model_config = ConfigDict(frozen=True)
    path: str
    metric: str
    value: float
    test: float | None
    single: str
    single_value: float
    single_test: float | None
    members: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `show --json` prints."""
        return self.model_dump(mode="json")


def ensembles_of(folder: Path, store: str | None = None) -> list[EnsembleSummary]:
    """Return the ensembles in the folder `exports` of a sweep, sorted by name.

    Folders without a valid manifest are left out.

    Args:
        folder: the sweep's folder.
        store: address of the sweep in a store, if the folder is a copy of it.
    """
    exports = SweepFolder(folder).exports
    return sorted(
        _read(exports, f"{store}/{exports.name}" if store else None),
        key=lambda ensemble: ensemble.path,
    )


def _read(exports: Path, address: str | None) -> Iterator[EnsembleSummary]:
    for file in exports.glob(f"*/{MANIFEST}"):
        content = read_json_object(file)
        if content is None or not content.get("members") or not is_text(str(file.parent)):
            continue
        try:
            found = _Manifest.model_validate(content)
        except ValidationError:
            continue
        training, single = found.training, found.training.ensemble.single
        yield EnsembleSummary(
            path=f"{address or exports}/{file.parent.name}",
            metric=training.metric,
            value=training.value,
            test=training.test,
            single=single.trial,
            single_value=single.value,
            single_test=single.test,
            members={member.trial: member.weight for member in found.members},
        )
