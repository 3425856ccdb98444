"""Functions that return Keras models, as a user writes them.

Keras is imported with the framework that `KERAS_BACKEND` names.
"""

from __future__ import annotations

from typing import Any

import keras

ENDS = {
    "binary": ("sigmoid", "binary_crossentropy", "AUC"),
    "multiclass": ("softmax", "sparse_categorical_crossentropy", "sparse_categorical_accuracy"),
    "regression": (None, "mean_squared_error", "mean_absolute_error"),
}


def compiled(
    input_shape: Any,
    outputs: Any,
    task: Any,
    units: int = 16,
    dropout: float = 0.1,
    learning_rate: float = 0.01,
) -> Any:
    """A compiled model with layers that draw random numbers and that count statistics."""
    activation, loss, metric = ENDS[task]
    layers = [
        keras.layers.Input(input_shape),
        keras.layers.Dense(units, "relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(dropout),
        keras.layers.Dropout(dropout, seed=5),
        keras.layers.Dense(outputs, activation),
    ]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(learning_rate), loss, metrics=[metric])
    return model


def not_compiled(input_shape: Any, outputs: Any, units: int = 16) -> Any:
    """A functional model whose outputs are logits."""
    inputs = keras.Input(input_shape)
    hidden = keras.layers.Dense(units, "relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(outputs)(hidden))


class Wide(keras.layers.Layer):  # type: ignore[misc]
    """A layer that is not registered with Keras."""

    def __init__(self, units: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.dense = keras.layers.Dense(units, "tanh")

    def build(self, shape: Any) -> None:
        self.dense.build(shape)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def get_config(self) -> Any:
        return super().get_config() | {"units": self.units}


class Own(keras.Model):  # type: ignore[misc]
    """A model that is a class, has its own training step, and has no weights before it is built."""

    def __init__(self, outputs: Any, units: int = 8, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count, self.units = outputs, units
        self.wide, self.end = Wide(units), keras.layers.Dense(outputs)

    def call(self, inputs: Any) -> Any:
        return self.end(self.wide(inputs))

    def get_config(self) -> Any:
        return super().get_config() | {"outputs": self.count, "units": self.units}


def own(outputs: Any, **params: Any) -> Any:
    """A model of a class, with parameters by any name."""
    return Own(outputs, **params)


def with_lambda(outputs: Any) -> Any:
    """A model that Keras does not load, because a lambda can run any code."""
    return keras.Sequential([keras.layers.Lambda(lambda x: 2 * x), keras.layers.Dense(outputs)])


class Forgetful(keras.layers.Layer):  # type: ignore[misc]
    """A layer that forgets its argument when Keras saves it."""

    def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs: Any) -> Any:
        return self.factor * inputs

    def get_config(self) -> Any:
        return {"name": self.name}


def forgetful(outputs: Any) -> Any:
    return keras.Sequential([Forgetful(3.0), keras.layers.Dense(outputs)])


def no_probabilities() -> Any:
    """A compiled model whose outputs are logits, while its loss expects probabilities."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "binary_crossentropy")
    return model


def three_outputs() -> Any:
    return keras.Sequential([keras.layers.Dense(3)])


def no_model() -> int:
    return 3
