"""The file with the predictions of a trial's best model for the rows of valid."""

import math
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import stores
from .sweep_folder import PREDICTIONS

# Names of the arrays with the step and the seconds, and the beginning of the names of the others.
_STEP = "step"
_SECONDS = "seconds"
_FOLD = "fold_"
# Trials do not keep predictions with more bytes.
MOST_BYTES = 64 << 20
# Errors that a damaged file raises, also one that says that it is huge
_DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class KeptPredictions:
    """Predictions of a trial's best model for the rows of valid.

    Attributes:
        step: The step of the model.
        folds: The output of the model: one array of shape (n,) or (n, k). In a cross-validation,
            one array for each fold: the output of the fold's model for the fold's rows.
        seconds: Seconds in which the models predicted these rows; NaN if the loop reported the
            predictions.
    """

    step: int
    folds: tuple[np.ndarray, ...]
    seconds: float = math.nan

    def write(self, file: Path) -> None:
        """Write the predictions to a file, as an archive of NumPy."""
        arrays = {f"{_FOLD}{number}": fold for number, fold in enumerate(self.folds)}
        with open(file, "wb") as opened:
            facts = {_STEP: np.int64(self.step), _SECONDS: np.float64(self.seconds)}
            np.savez(opened, allow_pickle=False, **facts, **arrays)


def read_predictions(root: str) -> KeptPredictions | None:
    """Read the predictions that a trial has kept.

    Args:
        root: Folder or address of the trial's checkpoints; see `checkpoint_files.checkpoint_root`.

    Returns:
        The predictions. None if the trial has kept none, or if the file is damaged.
    """
    if not stores.is_address(root):
        return _read(Path(root, PREDICTIONS))
    store = stores.open_store(root)
    if store.file(PREDICTIONS) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, PREDICTIONS)
        store.get(PREDICTIONS, file)
        return _read(file)


def _read(file: Path) -> KeptPredictions | None:
    if not file.is_file() or file.stat().st_size > 2 * MOST_BYTES:
        return None
    try:
        with np.load(file, allow_pickle=False) as arrays:
            count = sum(name.startswith(_FOLD) for name in arrays)
            folds = tuple(arrays[f"{_FOLD}{number}"] for number in range(count))
            step = int(arrays[_STEP])
            seconds = float(arrays[_SECONDS]) if _SECONDS in arrays else math.nan
    except _DAMAGE:
        return None
    return KeptPredictions(step, folds, seconds) if folds else None


def delete_predictions(root: str) -> None:
    """Delete the predictions that a trial has kept, if there are any; see `read_predictions`."""
    if stores.is_address(root):
        stores.open_store(root).delete(PREDICTIONS)
    else:
        Path(root, PREDICTIONS).unlink(missing_ok=True)
