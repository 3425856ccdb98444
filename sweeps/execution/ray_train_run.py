"""A gang of several workers: one long-lived Ray Train run.

Ray Train still gives the placement group, the process group (torch, XGBoost, LightGBM), the GPUs and the detection of dead
workers; its start-up is paid once a gang, not once a trial.
"""

from __future__ import annotations

from typing import Any

from sweeps.core.resources import Shape
from sweeps.execution.messages import Job

# Ray Train's controller looks after its workers every 2 s by default and takes that long to notice that they ended.
ENVIRONMENT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


def trainer_class(backend: str) -> Any:
    """Ray Train's trainer that sets up the process group of this name."""
    if backend == "torch":
        from ray.train.torch import TorchTrainer

        return TorchTrainer
    if backend == "xgboost":
        from ray.train.xgboost import XGBoostTrainer

        return XGBoostTrainer
    if backend == "lightgbm":
        from ray.train.lightgbm import LightGBMTrainer

        return LightGBMTrainer
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    return DataParallelTrainer


def _rank(config: dict[str, Any]) -> None:
    """The loop of one rank; imported on the worker."""
    from sweeps.execution import rank, ray_train_adapter

    number, _ = ray_train_adapter.ranks()
    rank.serve(config["pool"], config["gang"], config["job"], number, distributed=True)


def run(pool: Any, gang: str, job: Job, shape: Shape, storage: str) -> None:
    """Run the gang until it is closed. Blocks.

    Raises:
        ray.train.TrainingFailedError: a worker died.
    """
    from ray.train import RunConfig, ScalingConfig

    resources = dict(shape.per_worker)
    trainer_class(job.backend)(
        _rank,
        train_loop_config={"pool": pool, "gang": gang, "job": job},
        scaling_config=ScalingConfig(num_workers=shape.workers, use_gpu="GPU" in resources, resources_per_worker=resources),
        run_config=RunConfig(name=gang, storage_path=storage),
    ).fit()
