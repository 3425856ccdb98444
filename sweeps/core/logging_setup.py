"""Ray's, MLflow's and Optuna's chatter goes to the sweep's log, not to the terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

# What speaks while a sweep runs. Ray and its libraries put handlers of their own on these loggers.
LEVELS = {
    "sweeps": logging.INFO,
    # Tune looks for progress files of its own at the end and warns that there are none
    "ray.tune.analysis.experiment_analysis": logging.ERROR,
}
LOGGERS = (*LEVELS, "ray", "ray.tune", "ray.train", "ray.data", "ray.serve", "mlflow", "optuna", "alembic", "sqlalchemy", "py.warnings")

ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Tune's own experiment state is not relied on: the study is the record
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def set_environment() -> None:
    """Before Ray, Tune and MLflow are imported: what makes them quiet. What the user has set stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class _Log(io.TextIOBase):
    """Appends text to a file. What it cannot write, as on a full disk, is lost: a log must not end what it tells of.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        self._file = io.FileIO(path, "ab")  # with a buffer, what was not written would be tried again

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._file.write(text.encode(errors="replace"))
        return len(text)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        super().close()


@contextlib.contextmanager
def redirect_to_file(path: Path) -> Iterator[None]:
    """While this lasts, the loggers of the libraries write to the file and nowhere else; so does what they print.

    Ray prints what its raylet has to say of dead workers on stdout, where `--json` promises one object and nothing else.
    """
    file = _Log(path)
    handler = logging.StreamHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = []
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        before.append((logger, logger.handlers[:], logger.propagate, logger.level))
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(LEVELS.get(logger.name, logging.WARNING))
    children = ("ray.", "mlflow.", "alembic.")
    for name, other in list(logging.Logger.manager.loggerDict.items()):
        if name.startswith(children) and isinstance(other, logging.Logger) and other.handlers and other not in loggers:
            before.append((other, other.handlers[:], other.propagate, other.level))
            other.handlers = []
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(file):
            yield
    finally:
        logging.captureWarnings(False)
        for logger, handlers, propagate, level in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        handler.close()
        file.close()
