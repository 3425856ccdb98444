"""Define the parts of the trainer `keras` that depend on TensorFlow.

These parts are threads, seeds, the order of batches, and the mean of all ranks' gradients.

`fit` of Keras 3 does not work with TensorFlow's `MultiWorkerMirroredStrategy`
(keras-team/keras#20585). Therefore, torch's process group averages the gradients, as for PyTorch.
The workers then join no TensorFlow cluster, and can train the next trial.
"""

import contextlib
import math

import numpy as np
import tensorflow as tf

from . import Params
from ._torch_parallel import Ranks


def set_threads(threads: int) -> None:
    """Set the number of threads that one operation uses.

    Only the first trial of a process can set this number.
    """
    with contextlib.suppress(RuntimeError):  # TensorFlow has started its threads
        tf.config.threading.set_intra_op_parallelism_threads(threads)


def set_seed(seed: int) -> None:
    """Seed the random numbers of TensorFlow."""
    tf.random.set_seed(seed)


class TensorFlowBatches:
    """The training rows of this rank, in an order that each epoch draws anew.

    Args:
        x: Features, float32 of shape (n, columns).
        y: Labels, shape (n,).
        weights: Weights of the rows, float32 of shape (n,). None if all rows count the same.
        size: Number of rows of a batch. The last batch of an epoch may be smaller.

    Attributes:
        arguments: Arguments of `keras.Model.fit`.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None, size: int):
        self._seed = tf.Variable([0, 0], dtype=tf.int64, trainable=False)
        parts = tuple(tf.constant(part) for part in (x, y, weights) if part is not None)

        def epoch(_: tf.Tensor) -> tf.data.Dataset:
            """Return batches of the numbers of all rows, in the order of the current seed."""
            order = tf.random.experimental.stateless_shuffle(tf.range(len(x)), self._seed)
            return tf.data.Dataset.from_tensor_slices(order).batch(size)

        # `fit` reads the data set once in each epoch, so TensorFlow calls `epoch` each time.
        batches = tf.data.Dataset.range(1).flat_map(epoch)
        rows = batches.map(lambda order: tuple(tf.gather(part, order) for part in parts))
        rows = rows.apply(tf.data.experimental.assert_cardinality(math.ceil(len(x) / size)))
        # Without `shuffle`, `fit` warns.
        self.arguments: Params = {"x": rows.prefetch(tf.data.AUTOTUNE), "shuffle": False}

    def start_epoch(self, seed: int) -> None:
        """Choose the order of the rows of the next epoch. The same seed gives the same order."""
        self._seed.assign([seed, 0])


BATCHES = TensorFlowBatches


def average(values: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """Return the mean of the tensors of all ranks."""
    mean = tf.numpy_function(ranks.average, [values], values.dtype)
    return tf.ensure_shape(mean, values.shape)
