"""Write a bundle that averages models: those of an ensemble, or those of a trial's folds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sweeps.core.result import to_json_value
from sweeps.data.prepared_store import DatasetInfo

from . import write
from .averaging import average, to_numbers
from .manifest import Facts, Member
from .sweep_models import ModelFiles, SweepModels, recorded_predictions, score_test

if TYPE_CHECKING:
    from sweeps.core.trial import Trial


@dataclass(frozen=True)
class TrainedMember:
    """The models of one trial in an average.

    Attributes:
        models: The models: one, or one for each fold of a cross-validation.
        weight: Weight of the trial in the average, shared by its models.
        facts: Facts about the training, for the manifest.
    """

    models: Sequence[ModelFiles]
    weight: int
    facts: Facts

    @property
    def trial(self) -> Trial:
        """The trial."""
        return self.models[0].trial


def score_on_test(
    models: SweepModels, members: Sequence[TrainedMember]
) -> tuple[list[float | None], float | None, str | None]:
    """Score each member and the average of all members on the test split.

    Args:
        models: The models of the sweep.
        members: The members.

    Returns:
        The score of each member, the score of the average, and a note that says why the average has
        no score. There are no scores and no note if there are no test rows.

    Raises:
        BundleError: A member cannot predict.
    """
    metric = models.space.objective.metric
    info = models.prepared.load_info(members[0].trial.data)
    classes = len(info.classes or ())
    outputs = []
    scores = []
    labels = np.zeros(0)
    for member in members:
        test = models.prepared.load_test(member.trial.data)
        if test is None:
            return [None] * len(members), None, None
        raw, labels = test  # the labels are the same for all members
        own = [
            to_numbers(models.predict(files, raw), info.task, classes) for files in member.models
        ]
        outputs += own
        score, _ = score_test(metric, info.task, labels, average(own, [1] * len(own)))
        scores.append(score)
    averaged = average(outputs, _weights(members))
    return scores, *score_test(metric, info.task, labels, averaged)


def _weights(members: Sequence[TrainedMember]) -> list[int]:
    """Return the weight of each model of all members, in whole numbers without a common divisor."""
    multiple = math.lcm(*(len(member.models) for member in members))
    weights = [
        member.weight * (multiple // len(member.models))
        for member in members
        for _ in member.models
    ]
    divisor = math.gcd(*weights)
    return [weight // divisor for weight in weights]


def write_average(
    target: Path, models: SweepModels, members: Sequence[TrainedMember], facts: Facts
) -> Path:
    """Write the bundle of an average, and return its folder.

    Args:
        target: Folder in which the subfolder `bundle` is written.
        models: The models of the sweep.
        members: The members.
        facts: Facts about the sweep and the average, for the manifest.

    Raises:
        BundleError: The bundle cannot be written, or predicts other values than in training.
    """
    infos = [models.prepared.load_info(member.trial.data) for member in members]
    check = _check_rows(infos)
    first = infos[0]
    weights = iter(_weights(members))
    main_load = models.code(members[0].trial).load
    trained: dict[str, write.TrainedModel] = {}
    described = []
    for member, info in zip(members, infos, strict=True):
        code = models.code(member.trial)
        # None: the member reads all columns of the bundle, or has the `load` of the first.
        columns = None if list(info.features) == list(check.columns) else list(info.features)
        for files in member.models:
            described.append(
                Member(
                    trial=member.trial.id,
                    fold=files.fold,
                    weight=next(weights),
                    columns=columns,
                    load=None if code.load == main_load else code.load,
                    training=to_json_value(member.facts),
                )
            )
            model = write.TrainedModel(files.folder, files.chain, code)
            trained[described[-1].folder] = model
    return write.write_bundle(
        target / "bundle",
        models=trained,
        info=replace(first, check=check),
        expected=_expected(trained, described, first),
        training=to_json_value(facts),
        members=described,
    )


def _check_rows(infos: Sequence[DatasetInfo]) -> pd.DataFrame:
    """Return the check rows with the features of all members."""
    columns: dict[str, pd.Series] = {}
    for info in sorted(infos, key=lambda info: -len(info.features)):
        for name in info.features:
            columns.setdefault(name, info.check[name])
    return pd.DataFrame(columns, index=infos[0].check.index)


def _expected(
    trained: Mapping[str, write.TrainedModel], members: Sequence[Member], info: DatasetInfo
) -> np.ndarray | None:
    """Return the average of the predictions that the trainers recorded for the check rows.

    None if a model has no recorded predictions.
    """
    recorded = [recorded_predictions(model.checkpoint) for model in trained.values()]
    outputs = [to_numbers(r, info.task, len(info.classes or ())) for r in recorded if r is not None]
    if len(outputs) < len(trained):
        return None
    return average(outputs, [member.weight for member in members])
