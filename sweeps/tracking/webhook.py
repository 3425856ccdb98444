"""The webhook tracker posts one JSON summary at the end of a sweep."""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue, StrictStr

from sweeps.core.result import outcome_of
from sweeps.core.secrets import masked, remember_variables
from sweeps.study.events import Event, SweepEnded, SweepStarted
from sweeps.tracking.json_values import json_value


def _url(text: str) -> str:
    """Check the URL in a space file. Environment variables in the URL are not replaced yet."""
    if "$" not in text and not (text.startswith(("http://", "https://")) and host(text)):
        raise ValueError("must be a URL that begins with http:// or https://")
    return text


class WebhookTracker:
    """Posts the sweep's result as JSON.

    If the server answers with an error or too late, the result gets a note.

    The body is `{"sweep", "folder", "status", "result"}`. `status` is `completed`, `interrupted` or
    `failed`. `result` is the object that `sweeps run --json` prints, without the entries that
    trackers add. `result` is null if the sweep failed before it had a result.
    """

    @dataclass(frozen=True)
    class Options:
        """Options in the space file.

        Attributes:
            url: The URL to which the summary is posted. `$NAME` is replaced by the value of the
                environment variable NAME, so that the space file need not contain a secret.
            timeout: Number of seconds to wait for the server's answer.
        """

        url: Annotated[
            StrictStr,
            Field(min_length=1, examples=["https://example.com/hook"]),
            AfterValidator(_url),
        ]
        timeout: Annotated[float, Field(gt=0, le=60, examples=[5])] = 10.0

    def __init__(self, options: Options):
        self._url, self._timeout = os.path.expandvars(options.url), options.timeout
        remember_variables(re.findall(r"\$\{?(\w+)", options.url))
        if not self._url.startswith(("http://", "https://")) or not host(self._url):
            raise ValueError(
                "`url` must begin with http:// or https:// after its variables are replaced, got "
                f"{shown(self._url)}"
            )
        self._started: SweepStarted | None = None

    def handle(self, event: Event) -> None:
        """Keep the sweep's start event, and post the summary when the sweep ends."""
        if isinstance(event, SweepStarted):
            self._started = event
        elif isinstance(event, SweepEnded) and self._started is not None:
            self._post(summary(self._started, event))

    def close(self) -> None:
        """Do nothing."""

    def _post(self, body: dict[str, JsonValue]) -> None:
        parts = urllib.parse.urlsplit(self._url)
        headers = {"Content-Type": "application/json", "User-Agent": "sweeps"}
        if parts.username is not None:  # urllib accepts no user and password in a URL.
            user = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or "")
            pair = f"{user}:{password}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        request = urllib.request.Request(
            url, json.dumps(body, default=str, allow_nan=False).encode(), headers, method="POST"
        )
        try:
            urllib.request.urlopen(request, timeout=self._timeout).close()
        except urllib.error.HTTPError as e:
            raise ConnectionError(f"{shown(self._url)} answered {e.code} {e.reason}") from None
        except OSError as e:  # This includes URLError and timeouts.
            raise ConnectionError(
                f"{shown(self._url)} did not answer: {getattr(e, 'reason', e)}"
            ) from None


def host(url: str) -> str:
    """Return the host of a URL; "" if the URL has no host."""
    try:
        return urllib.parse.urlsplit(url).hostname or ""
    except ValueError:
        return ""


def shown(url: str) -> str:
    """Return the scheme and the host of a URL.

    The rest is left out, because the path of a webhook is often secret.
    """
    return f"{url.partition('://')[0]}://{host(url)}/…" if host(url) else masked(url)


def summary(started: SweepStarted, ended: SweepEnded) -> dict[str, JsonValue]:
    """Return the JSON body that is posted at the end of a sweep."""
    content = ended.result.to_json() if ended.result is not None else None
    status = "failed" if content is None else outcome_of(content).replace("finished", "completed")
    return json_value(
        {"sweep": started.sweep, "folder": str(started.folder), "status": status, "result": content}
    )
