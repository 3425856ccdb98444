"""A Keras network that is trained by the trainer `keras` and by a bare loop, in turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.loops import in_turn


def keras_network(input_shape: tuple[int, ...]) -> Any:
    """Return a compiled Keras model with two hidden layers for two classes."""
    import keras

    hidden = [keras.layers.Dense(64, "relu") for _ in range(2)]
    model = keras.Sequential(
        [keras.layers.Input(input_shape), *hidden, keras.layers.Dense(1, "sigmoid")]
    )
    model.compile("adam", "binary_crossentropy")
    return model


def bare_keras(seed: int, epochs: int, train: Any, valid: Any) -> dict[str, float]:
    """Train with `fit`, and compute the logloss on valid after each epoch.

    Then evaluate the model of the best epoch.

    Args:
        seed: The trial's seed. The loop seeds its draws as the trainer does, so that both train the
            same model.
        epochs: Number of epochs.
        train: Features and labels of train.
        valid: Features and labels of valid.

    Returns:
        The metrics of the model of the best epoch, such as `valid-auc`.
    """
    import keras
    import torch

    from sweeps.trainers._metrics import measure

    def state(*parts: int) -> int:
        return int(np.random.SeedSequence(parts).generate_state(1)[0] >> 1)

    def scores(split: str, names: list[str] | None = None) -> dict[str, float]:
        x, y = {"train": train, "valid": valid}[split]
        outputs = [
            model.predict_on_batch(x[start : start + 16_384]) for start in range(0, len(x), 16_384)
        ]
        return measure("binary", split, y, np.concatenate(outputs)[:, 0].astype(np.float64), names)

    def end(epoch: int, logs: Any) -> None:
        loss = scores("valid", ["valid-logloss"])["valid-logloss"]
        if loss < best[0]:
            best[:] = [loss, model.get_weights()]

    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(state(seed))
    model, best = keras_network(train[0].shape[1:]), [np.inf, []]
    begin = lambda epoch, logs: torch.manual_seed(state(seed, epoch, 0))  # noqa: E731
    callback = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)
    model.fit(*train, batch_size=256, epochs=epochs, verbose=0, callbacks=[callback])
    model.set_weights(best[1])
    return scores("train") | scores("valid")


def paired_keras(config: dict[str, Any]) -> None:
    """Run the built-in Keras trainer and the bare loop in one trial; see `in_turn`."""
    import dataclasses

    import ray.train
    import torch

    from sweeps import trial
    from sweeps.trainers import keras

    options = {
        "model": "benchmarks.loops:keras_network",
        "framework": "torch",
        "standardize_target": True,
    }
    current = dataclasses.replace(trial.current(), options=options)
    trial.set_current(current)

    def table(name: str) -> tuple[np.ndarray, np.ndarray]:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        return frame.drop(columns=current.label).to_numpy(np.float32), frame[
            current.label
        ].to_numpy()

    def bare() -> dict[str, float]:
        torch.set_num_threads(2)
        train, valid = (
            current.cached(f"bare.{name}", lambda name=name: table(name))
            for name in ("train", "valid")
        )
        return bare_keras(current.seed, config["epochs"], train, valid)

    in_turn(
        config["times"],
        lambda: keras.train_func({"epochs": config["epochs"], "batch_size": 256}),
        bare,
    )
