"""The posterior means of the configurations of a sweep that has ended."""

from __future__ import annotations

from sweeps.study.study_store import StudyStore

from .samplers.gp_model import GpModel
from .samplers.sampler import SamplerContext
from .samplers.trial_groups import History


def final_means(store: StudyStore, variance: float | None) -> dict[int, float]:
    """Return the posterior means of complete configurations; see `GpModel.final_means`.

    Args:
        store: The study of a sweep with one objective.
        variance: Variance of the noise of a value. None to estimate it from repeats.
    """
    context = SamplerContext(store.space)
    history = History(repeats=store.space.repeats)
    history.refresh(store.study)
    model = GpModel(context, n_startup_trials=1, deterministic_objective=False)
    if not model.axes.names:
        return {}
    return model.final_means(history, variance)
