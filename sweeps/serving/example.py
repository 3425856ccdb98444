"""An example request for a bundle: a row that the export predicted, and a curl command with it."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pydantic_core
from pydantic import JsonValue

from .request_checks import Refused, read

if TYPE_CHECKING:
    from sweeps.bundle.bundle_model import Bundle

# Body of a request
Records = dict[str, list[dict[str, JsonValue]]]
# The file in which MLflow stores the example rows of a bundle.
EXAMPLE_FILE = "input_example.json"
# Longest body of a request that a curl command contains. A longer body is fetched from `/example`.
LONGEST_BODY = 2000


def example_of(bundle: Bundle) -> Records | None:
    """Return the body of a request with the example row that has the fewest missing values.

    Return None if the bundle has no example row that can be sent.
    """
    try:
        stored = json.loads((bundle.path / EXAMPLE_FILE).read_text(encoding="utf-8"))
        row = min(stored["data"], key=lambda values: values.count(None))
        body = {"records": [dict(zip(stored["columns"], row, strict=True))]}
        read(pydantic_core.to_json(body), bundle.manifest.columns)
    except (OSError, ValueError, KeyError, Refused):
        return None
    return body


def curl_command(url: str, body: Records, needs_token: bool) -> str:
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
