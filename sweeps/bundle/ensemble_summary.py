"""Read which ensembles a sweep's folder has, for `show` and the report.

The folder may come from a stranger, so no code in it runs.
"""

import contextlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from sweeps.core.files.json_files import read_json_object
from sweeps.core.files.sweep_folder import MANIFEST, SweepFolder
from sweeps.core.json_values import FiniteNumber, PrintableText

from .manifest import total_weights

Id = Annotated[str, Field(pattern=r"^[0-9]{4,9}$")]
Weight = Annotated[int, Field(ge=1, le=10**6)]


def _weights(members: list[dict[str, Any]]) -> dict[str, int]:
    """Return the weight of each trial: the sum over the models of its folds."""
    try:
        pairs = [(member["trial"], member["weight"]) for member in members]
        return total_weights(pairs)
    except (TypeError, KeyError):
        raise ValueError("must be a list of members") from None


class EnsembleSummary(BaseModel):
    """An ensemble that a sweep has exported, as its manifest describes it.

    Attributes:
        path: Path of the bundle's folder. If the sweep is in a store and was copied from there, the
            folder's address in the store.
        metric: Metric of the objective.
        value: Score of the ensemble on valid.
        test: Score of the ensemble on test; None if it is not known.
        single: Id of the best single model's trial.
        single_value: Score of the best single model on valid.
        single_test: Score of the best single model on test; None if it is not known.
        members: Weight of each member, by the id of its trial.
    """

    model_config = ConfigDict(frozen=True)
    path: PrintableText
    metric: PrintableText = Field(validation_alias=AliasPath("training", "metric"))
    value: FiniteNumber = Field(validation_alias=AliasPath("training", "value"))
    test: FiniteNumber | None = Field(validation_alias=AliasPath("training", "test"))
    single: Id = Field(validation_alias=AliasPath("training", "ensemble", "single", "trial"))
    single_value: FiniteNumber = Field(
        validation_alias=AliasPath("training", "ensemble", "single", "value")
    )
    single_test: FiniteNumber | None = Field(
        validation_alias=AliasPath("training", "ensemble", "single", "test")
    )
    members: Annotated[dict[Id, Weight], Field(min_length=1), BeforeValidator(_weights)]


def ensembles_of(folder: Path, store: str | None = None) -> list[EnsembleSummary]:
    """Return the ensembles in the folder `exports` of a sweep, sorted by name.

    Folders without a valid manifest of an ensemble are left out.

    Args:
        folder: The sweep's folder.
        store: Address of the sweep in a store, if the folder is a copy of it.
    """
    exports = SweepFolder(folder).exports
    place = f"{store}/{exports.name}" if store else exports
    summaries = []
    for file in sorted(exports.glob(f"*/{MANIFEST}")):
        path = f"{place}/{file.parent.name}"
        with contextlib.suppress(ValidationError):
            content = {**(read_json_object(file) or {}), "path": path}
            summaries.append(EnsembleSummary.model_validate(content))
    return summaries
