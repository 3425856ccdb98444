"""An example request for a bundle: a row that the export of the bundle predicted, and a curl command that sends this row."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any

import pydantic_core

from sweeps.bundle.manifest import CHECK_ROWS, DATA_FOLDER
from sweeps.serving.request_checks import Refused, read

if TYPE_CHECKING:
    from sweeps.bundle.model import Bundle

# Longest body of a request that a curl command contains. A longer body is fetched from `/example`.
LONGEST_BODY = 2000


def example_of(bundle: Bundle) -> dict[str, Any] | None:
    """Return the body of a request with one row of the bundle's own example rows; None if the bundle has none that can be sent."""
    import pandas as pd

    file = bundle.path / DATA_FOLDER / CHECK_ROWS
    if not file.is_file():
        return None
    try:
        rows = pd.read_parquet(file, columns=[c.name for c in bundle.manifest.columns])
        complete = int(
            rows.isna().sum(axis=1).to_numpy().argmin()
        )  # the first of the rows with the fewest missing values
        row = {c.name: _json_value(rows[c.name].iloc[complete]) for c in bundle.manifest.columns}
        body = {"records": [row]}
        read(pydantic_core.to_json(body), bundle.manifest.columns)
    except (
        Refused,
        KeyError,
        IndexError,
        ValueError,
        TypeError,
        OSError,
    ):  # such as a column of objects that JSON does not have
        return None
    return body


def _json_value(value: Any) -> Any:
    """Return a value of a table as a value of JSON: null for a missing value, a list for an array, and text for a time."""
    if hasattr(value, "tolist"):  # a NumPy scalar or array
        value = value.tolist()
    if isinstance(value, list):
        return [_json_value(inner) for inner in value]
    if hasattr(value, "isoformat"):
        text = value.isoformat()
        return None if text == "NaT" else text
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if str(value) == "<NA>":
        return None
    raise TypeError(type(value))


def curl_command(url: str, body: dict[str, Any], needs_token: bool) -> str:
    """Return a curl command that sends a request to `/predict`, for a shell.

    Args:
        url: URL of the server.
        body: Body of the request.
        needs_token: True if the server requires a token. The command takes it from the variable
            `SWEEPS_SERVE_TOKEN`.
    """
    token = ' -H "Authorization: Bearer $SWEEPS_SERVE_TOKEN"' if needs_token else ""
    post = f"curl -s{token} {url}/predict -H 'Content-Type: application/json' -d "
    text = pydantic_core.to_json(body).decode()
    if len(text) > LONGEST_BODY:
        return f"curl -s{token} {url}/example | {post}@-"
    return post + shlex.quote(text)
