"""The model of `keras_digits.yaml`.

Keras runs on the framework that the space file names, so this file is the same for each.
"""

from __future__ import annotations

import keras


def make_model(
    input_shape: tuple[int, ...],
    outputs: int,
    filters: int = 8,
    units: int = 32,
    dropout: float = 0.2,
    learning_rate: float = 0.001,
) -> keras.Model:
    """Return a small convolutional network for images of 8 × 8 pixels.

    The trainer gives `input_shape` and `outputs`. `params` gives the other arguments.
    """
    model = keras.Sequential(
        [
            keras.layers.Input(input_shape),
            keras.layers.Reshape((8, 8, 1)),
            keras.layers.Conv2D(filters, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(outputs, activation="softmax"),
        ]
    )
    # A function may also return a model that is not compiled. `params` then chooses the optimizer
    # and the loss.
    model.compile(
        keras.optimizers.Adam(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["sparse_top_k_categorical_accuracy"],
    )
    return model
