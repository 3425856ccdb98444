"""Settings that all trials of a sweep share, computed from the space and the cluster."""

from collections.abc import Mapping
from pathlib import Path

from sweeps.core.files.stores import store_of
from sweeps.core.resources import COSTS, auto_concurrency
from sweeps.data.streaming.stream_settings import StreamSettings
from sweeps.execution.cluster.ray_cluster import RayConnection
from sweeps.execution.messages import Job
from sweeps.search.plugins import scheduler_of
from sweeps.search.schedulers.scheduler import rung_set
from sweeps.space import Space
from sweeps.space.sections.average_problem import prediction_problem
from sweeps.study.objectives import Objectives

from .session_secrets import secret_names


def job_of(space: Space, folder: Path, cluster: RayConnection, secrets: Mapping[str, str]) -> Job:
    """Return the settings that all trials of a sweep share.

    Args:
        space: The search space.
        folder: The sweep's folder.
        cluster: The Ray cluster.
        secrets: See `session_secrets.storage_secrets`.
    """
    scheduler = scheduler_of(space.scheduler)
    objectives = Objectives.from_space(space)
    rungs = rung_set(scheduler)
    every_step_is_rung = isinstance(rungs, range) and rungs.step == 1
    counts_steps = not (space.data.folds or space.scheduler.counts_rows)
    return Job(
        sweep=space.name,
        trainers={label: each.loop_spec for label, each in space.trainers.items()},
        folds=space.data.folds,
        keeps_predictions=keeps_predictions(space),
        goals={o.metric: o.goal for o in space.objectives if o.metric not in COSTS},
        roots=cluster.roots,
        metric=objectives.metric,
        goal="minimize" if objectives.minimize else "maximize",
        asked=objectives.reported_metrics,
        constraints=objectives.order.constraints,
        max_t=scheduler.max_t,
        sweep_max_t=scheduler.max_t if counts_steps else None,
        rungs=rungs,
        required_steps=range(0) if every_step_is_rung else rungs,
        milestones=rungs if scheduler.needs_checkpoint else range(0),
        takes_turns=scheduler.perturbs,
        trial_timeout=space.limits.trial_timeout,
        report_timeout=space.limits.report_timeout,
        heartbeat_timeout=space.limits.heartbeat_timeout,
        retry_on=space.limits.retry_on,
        keep_latest=max(1, space.checkpoints.per_trial - 1),
        store=store_of(folder),
        secrets=secrets,
        secret_names=secret_names(space, secrets),
        stream=stream_settings(space, cluster),
    )


def keeps_predictions(space: Space) -> bool:
    """Return True if trials keep their predictions for valid, and models are chosen with them."""
    has_use = prediction_problem(space.objectives, space.data) is None
    return has_use and space.checkpoints.predictions > 0


def stream_settings(space: Space, cluster: RayConnection) -> StreamSettings | None:
    """Return Ray Data's settings if the data is streamed; else None."""
    if space.data.ingest != "stream":
        return None
    limits = space.limits
    trials = limits.max_concurrent_trials or auto_concurrency(
        space.shapes, cluster.total, limits.max_trials or 1
    )
    return StreamSettings(float(cluster.stream_cpus), trials)
