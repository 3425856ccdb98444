"""The function `sweeps.report`, with which a script of the trainer `command` reports metrics.

The worker of rank 0 listens at a Unix socket, whose path is in the environment variable
`SWEEPS_REPORT_SOCKET`. A report is one connection: the script sends one line of JSON, and the
worker closes the connection when the report is recorded.
"""

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps.core.loop_context import is_running

SOCKET = "SWEEPS_REPORT_SOCKET"


def report(
    metrics: Mapping[str, Any] | None = None,
    /,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    **more: Any,
) -> None:
    """Report a step of a script that the trainer `command` runs.

    The call returns when sweeps has copied the checkpoint and the scheduler has decided. If the
    scheduler stops the trial, the script receives SIGTERM. On ranks other than 0, the call does
    nothing. Outside of a sweep, it prints the metrics as a line of JSON.

    Args:
        metrics: The metrics, by name. Nested mappings are allowed.
        checkpoint: Folder with the model of this step, which is copied. None to report without a
            checkpoint.
        **more: More metrics, such as `loss=0.5`.

    Raises:
        TypeError: A metric is not a number and cannot be converted to one.
        RuntimeError: The call is in a training loop, which reports with `ray.train.report`.
        NotADirectoryError: `checkpoint` is not a folder.
    """
    values = {
        str(name): _convert_metric(name, value)
        for name, value in {**(metrics or {}), **more}.items()
    }
    folder = None if checkpoint is None else Path(checkpoint).resolve()
    if folder is not None and not folder.is_dir():
        raise NotADirectoryError(f"`checkpoint` must be an existing folder, got {str(folder)!r}")
    if os.environ.get("RANK", "0") != "0":
        return
    if is_running():
        raise RuntimeError(
            "sweeps.report is for scripts; in a training loop, call ray.train.report(metrics)"
        )
    if not (address := os.environ.get(SOCKET)):
        print(json.dumps(values), flush=True)
        return
    message = json.dumps({"metrics": values, "checkpoint": None if folder is None else str(folder)})
    # An OSError means that the trial was stopped, so the worker no longer listens. This process has
    # received SIGTERM.
    with contextlib.suppress(OSError):
        _send(address, message)


def _send(address: str, message: str) -> None:
    """Send a report to the worker, and wait until the report is recorded."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(message.encode() + b"\n")
        while connection.recv(1024):  # The worker closes the connection.
            pass


def _convert_metric(name: Any, value: Any) -> Any:
    """Convert the value of a metric, or the values in a nested mapping, to floats.

    None, text and booleans are returned unchanged.
    """
    if isinstance(value, Mapping):
        return {str(key): _convert_metric(f"{name}.{key}", v) for key, v in value.items()}
    if value is None or isinstance(value, (str, bool)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"the metric `{name}` must be a number, got {type(value).__name__}"
        ) from None
