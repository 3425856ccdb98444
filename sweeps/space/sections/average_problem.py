"""Why the models of a sweep cannot be averaged, or scored by their predictions."""

from collections.abc import Iterable, Sequence

from sweeps.core import metrics
from sweeps.core.plugins import references
from sweeps.core.resources import COSTS

from .data_models import DataSpec
from .search_models import Objective
from .trainer_spec import TrainerSpec


def average_problem(
    objectives: Sequence[Objective], data: DataSpec, trainers: Iterable[TrainerSpec]
) -> str | None:
    """Return why models cannot be averaged and scored on the rows of valid, and the next step.

    Return None if they can.
    """
    if all(trainer.load is None for trainer in trainers):
        return (
            "needs the key `load` of the trainer, a function that loads a model from a "
            "checkpoint; add it (a sweep that has ended must run again)"
        )
    return prediction_problem(objectives, data)


def prediction_problem(objectives: Sequence[Objective], data: DataSpec) -> str | None:
    """Return why the objective cannot be computed from predictions for the rows of valid.

    Return None if it can.
    """
    metric = objectives[0].metric
    if not data.is_named or not data.labels:
        return (
            "needs the labelled rows of valid, which sweeps knows only if the space file has the "
            "section `data` with a `label`"
        )
    if data.ingest == "stream":
        return (
            "does not work with streamed data, because the rows of valid must fit in memory; "
            "write `data.ingest: memory`"
        )
    if len(objectives) > 1:
        names = ", ".join(objective.metric for objective in objectives)
        return (
            f"needs a single objective, but this sweep has {len(objectives)}: {names}; export "
            "single models"
        )
    if metric in COSTS:
        return (
            f"cannot choose models by the objective `{metric}`, because it is a cost and not a "
            "score of predictions; export single models"
        )
    if not references.is_reference(metric) and metrics.base_name(metric) not in metrics.METRICS:
        return (
            f"cannot compute the objective `{metric}` from predictions, because only the loop "
            "knows it; export single models, or run the sweep with a metric of sweeps, such as "
            "`logloss` or `rmse`, or with a function `module:function`"
        )
    return None
