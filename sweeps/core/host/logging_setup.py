"""Send log messages of Ray, MLflow and Optuna to the sweep's log file, not to the terminal."""

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from sweeps.core.text.secrets import masked
from sweeps.core.text.shell_text import printable

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Levels of loggers. A logger that is not listed here has the level WARNING.
LEVELS = {
    "sweeps": logging.INFO,
    # When a sweep ends, Tune warns that Tune's own progress files are missing.
    "ray.tune.analysis.experiment_analysis": logging.ERROR,
}
# The loggers to redirect. Ray and its libraries add their own handlers to these loggers.
LOGGERS = (
    *LEVELS,
    "ray",
    "ray.tune",
    "ray.train",
    "ray.data",
    "mlflow",
    "optuna",
    "alembic",
    "sqlalchemy",
    "py.warnings",
)

# Longest temporary folder of Ray. The path of a socket has at most 107 bytes, 68 of them for
# `/ray/session_2026-11-28_10-04-25_123456_1234567/sockets/plasma_store`.
LONGEST_TEMPORARY = 107 - 68

ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    # Otherwise Ray sets CUDA_VISIBLE_DEVICES to "" in workers that need no GPU.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Tune's own experiment state is not used, because a sweep is resumed from its study alone.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def set_environment() -> None:
    """Set environment variables of Ray, Ray Tune and MLflow.

    They turn off progress output, telemetry and signal handlers. Call this function before one of
    these libraries is imported. A variable that is already set keeps its value, except a temporary
    folder whose path is too long for Ray's sockets. Ray then uses `/tmp`.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    temporary = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR", "")
    if len(os.fsencode(temporary)) > LONGEST_TEMPORARY:
        os.environ["RAY_TMPDIR"] = "/tmp"


class _Log(io.TextIOBase):
    """Text file to which log messages are appended, without secrets.

    Characters that control a terminal become escapes. Text that cannot be written is dropped, so
    a full disk never ends a sweep.

    Args:
        file: Path or descriptor of the file.
    """

    def __init__(self, file: Path | int):
        # Unbuffered, because a buffer would try to write dropped text again.
        self._file = io.FileIO(file, "ab")

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._file.write(printable(masked(text)).encode(errors="replace"))
        return len(text)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        super().close()


class _Formatter(logging.Formatter):
    """Indents the further lines of a record, so that no message looks like another record."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\n  ")


def file_handler(file: Path | int) -> logging.StreamHandler[_Log]:
    """Return a handler that appends records to a file, given by its path or its descriptor."""
    handler = logging.StreamHandler(_Log(file))
    handler.setFormatter(_Formatter(FORMAT))
    return handler


@contextlib.contextmanager
def redirect_to_file(path: Path) -> Iterator[None]:
    """Redirect logs, warnings and stdout to a file while the `with` block runs.

    The logs are those of sweeps, Ray, MLflow and Optuna, and the warnings are Python's. Ray prints
    messages about dead workers to stdout. With `--json`, stdout must contain nothing but one JSON
    object.

    Args:
        path: The log file; text is appended.
    """
    handler = file_handler(path)
    file = handler.stream
    # Without handlers of its own, a logger such as `ray.serve` passes its records to `ray`.
    with_handlers = {
        name
        for name, logger in logging.Logger.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.handlers
    }
    children = {n for n in with_handlers if n.startswith(("ray.", "mlflow.", "alembic."))}
    loggers = [logging.getLogger(name) for name in {*LOGGERS} | children]
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(LEVELS.get(logger.name, logging.WARNING))
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(file):
            yield
    finally:
        logging.captureWarnings(False)
        for logger, handlers, propagate, level in before:
            logger.handlers = handlers
            logger.propagate = propagate
            logger.setLevel(level)
        handler.close()
        file.close()
