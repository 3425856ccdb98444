"""Training loops as in the documentation of Ray and of each framework, with tiny models.

They do not use sweeps.
"""

from __future__ import annotations

from typing import Any


def lightgbm_loop(config: Any) -> None:
    """Train as in https://docs.ray.io/en/latest/train/getting-started-lightgbm.html."""
    import lightgbm as lgb
    import ray.train
    from ray.train.lightgbm import (
        RayTrainReportCallback,
        get_network_params,
        normalize_pandas_for_lightgbm,
    )

    train, valid = (
        normalize_pandas_for_lightgbm(ray.train.get_dataset_shard(name).materialize().to_pandas())
        for name in ("train", "valid")
    )
    train_set = lgb.Dataset(train.drop(columns="y"), label=train["y"])
    params = {
        "objective": "regression",
        "metric": "rmse",
        "learning_rate": config["lr"],
        "num_leaves": 7,
        "num_threads": 1,
        "verbose": -1,
        "tree_learner": "data_parallel",
        "pre_partition": True,
        **get_network_params(),
    }
    lgb.train(
        params,
        train_set,
        valid_sets=[lgb.Dataset(valid.drop(columns="y"), label=valid["y"], reference=train_set)],
        valid_names=["valid"],
        num_boost_round=4,
        callbacks=[RayTrainReportCallback(frequency=2)],
    )


def tensorflow_loop(config: Any) -> None:
    """https://docs.ray.io/en/latest/train/distributed-tensorflow-keras.html: Ray's backend sets
    `TF_CONFIG`.

    With a step of its own: `fit` of Keras 3 does not work with this strategy
    (keras-team/keras#20585).
    """
    import keras
    import ray.train
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow
    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    x, y = frame[["a", "b"]].to_numpy("float32"), frame["y"].to_numpy("float32")
    batches = iter(tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(32))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(config["lr"])
        optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = (
                    tf.reduce_mean((model(x, training=True)[:, 0] - y) ** 2)
                    / strategy.num_replicas_in_sync
                )
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce(
            tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(x, y)), axis=None
        )

    for _ in range(3):
        loss = float(step(*next(batches)))
        ray.train.report({"loss": loss, "replicas": strategy.num_replicas_in_sync})


def _lightning_module(lr: Any) -> Any:
    import lightning.pytorch as pl
    import torch

    class Line(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: Any) -> Any:
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.layer(x)[:, 0], y)
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, index: Any) -> None:
            x, y = batch
            self.log("loss", torch.nn.functional.mse_loss(self.layer(x)[:, 0], y), sync_dist=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=lr)

    return Line()


def _loader(name: Any) -> Any:
    import ray.train
    import torch

    frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
    x, y = (
        torch.tensor(frame[["a", "b"]].to_numpy("float32")),
        torch.tensor(frame["y"].to_numpy("float32")),
    )
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32)


def lightning_loop(config: Any) -> None:
    """Train as in https://docs.ray.io/en/latest/train/getting-started-pytorch-lightning.html."""
    import lightning.pytorch as pl
    import ray.train.lightning

    trainer = pl.Trainer(
        max_epochs=2,
        devices="auto",
        accelerator="cpu",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[ray.train.lightning.RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    trainer.fit(
        _lightning_module(config["lr"]),
        train_dataloaders=_loader("train"),
        val_dataloaders=_loader("valid"),
    )


def lightning_for_tune(config: Any) -> None:
    """Train as in Ray Tune's Lightning example, with Tune's callback."""
    import lightning.pytorch as pl
    from ray.tune.integration.pytorch_lightning import TuneReportCheckpointCallback

    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[TuneReportCheckpointCallback({"loss": "loss"}, on="validation_end")],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    trainer.fit(
        _lightning_module(config["lr"]),
        train_dataloaders=_loader("train"),
        val_dataloaders=_loader("valid"),
    )
