"""The ASGI application of the page: files for everyone, and data and commands by rules.

The rules are those of `sweeps serve`. The files of the page contain no data, so that a browser,
which sends no token at first, can show the field for the token. Every request for data must have
the token, if there is one. A request that changes something must also have the header `X-Sweeps`.
Another site cannot send this header, because this server never gives the permission that browsers
ask for (CORS).
"""

import asyncio
import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    StreamingResponse,
)
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeps.controller.commands import Answer, CommandError, parse
from sweeps.core.errors import InputError, SweepsError
from sweeps.core.files.folder_lock import is_driven
from sweeps.core.files.sweep_folder import is_sweep
from sweeps.core.text.secrets import without_password
from sweeps.core.text.texts import count_states, value_text
from sweeps.serving.access import Access, AllowedHosts, TokenGuard
from sweeps.space.model.domains import short_names
from sweeps.stored.control import DriverEnded, ask
from sweeps.stored.log_reader import read_logs
from sweeps.stored.sweep_lookup import trial_of
from sweeps.stored.sweep_summary import SweepSummary
from sweeps.sweep_report import html_page
from sweeps.sweep_report.configuration import dotted_rows
from sweeps.sweep_report.plots import FIGURES
from sweeps.sweep_report.traces import TITLES
from sweeps.tracking.mlflow.mlflow_tracker import default_uri

from . import page_content
from .sweep_reader import SweepReader

STATIC = Path(__file__).parent / "static"
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters |= {
    "counts": count_states,
    "time": page_content.time_text,
    "value": value_text,
}
LOG_LINES = 2000
MAX_COMMAND_BYTES = 1 << 16
# Seconds between two looks at the folders for changes.
POLL_SECONDS = 1.0
# Seconds without a change after which a stream sends a comment, so that dead connections close.
ALIVE_SECONDS = 15.0
# Seconds to wait for the answer to a command. Later answers are not shown, but the page shows what
# the command has changed.
ANSWER_SECONDS = 5.0
# Control sequences of terminals, such as colors.
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]")
# Nothing comes from another server. Plotly makes functions from text and sets styles, which needs
# the two values `unsafe`.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
COMMAND_HEADER = "x-sweeps"
READ_ONLY = (
    "this server takes no commands, because other machines can reach it and it has no token; "
    "start `sweeps ui` with --token-file, "
    "or with --host 127.0.0.1"
)


class Dashboard:
    """The endpoints of the page. Methods without `async` run in threads.

    Args:
        root: Root folder of all sweeps.
        may_command: True if the server accepts commands.

    Attributes:
        ended: True as soon as the server shuts down, which ends the streams of events.
    """

    def __init__(self, root: Path, may_command: bool):
        self.root = root
        self.may_command = may_command
        self.ended = False
        self._readers: dict[str, SweepReader] = {}
        self._lock = threading.Lock()

    def reader(self, sweep: str) -> SweepReader:
        """Return the reader of a sweep, given the name of the sweep's folder.

        Raises:
            HTTPException: There is no such sweep.
        """
        if sweep not in self._names():
            raise HTTPException(404, f"no sweep `{sweep[:100]}` in {self.root}")
        with self._lock:
            return self._readers.setdefault(sweep, SweepReader(self.root / sweep))

    def _names(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(folder.name for folder in self.root.iterdir() if is_sweep(folder))

    def sweeps(self) -> HTMLResponse:
        """Return the list of all sweeps of the root, the newest first."""
        summaries: list[SweepSummary] = []
        problems: list[str] = []
        for name in self._names():
            try:
                summaries.append(self.reader(name).summary())
            # The sweep was removed meanwhile, is damaged, or cannot be read.
            except (SweepsError, HTTPException, OSError) as e:
                problems.append(f"{name}: {e}")
        summaries.sort(key=lambda summary: summary.began, reverse=True)
        problems += [str(problem) for summary in summaries for problem in summary.problems]
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not uri and (self.root / "mlflow.db").is_file():
            uri = default_uri(self.root)
        return render(
            "list.html",
            root=self.root,
            sweeps=summaries,
            problems=problems,
            mlflow=without_password(uri),
        )

    def sweep(self, sweep: str, query: Annotated[page_content.TableQuery, Query()]) -> HTMLResponse:
        """Return a sweep with a page of its table of trials."""
        snapshot = self.reader(sweep).snapshot()
        dimensions = snapshot.data.dimensions if snapshot.data is not None else ()
        has_front = snapshot.data is not None and len(snapshot.data.objectives) in (2, 3)
        titles = {key: text for key, text in TITLES.items() if key != "pareto" or has_front}
        return render(
            "sweep.html",
            summary=snapshot.summary,
            facts=page_content.sweep_facts(snapshot),
            notes=page_content.sweep_notes(snapshot),
            table=page_content.trial_table(snapshot, query),
            query=query,
            may_command=self.may_command,
            titles=titles,
            dimensions=short_names([d.name for d in dimensions]),
        )

    def figure(self, sweep: str, key: str, name: str = "", trials: str = "") -> JSONResponse:
        """Return a figure of a sweep.

        Args:
            sweep: Name of the sweep's folder.
            key: A key of `FIGURES`.
            name: The dimension of a slice; "" for the most important one.
            trials: Ids of the trials in the figure of the curves; "" for the default.
        """
        reader = self.reader(sweep)
        if key not in FIGURES:
            raise HTTPException(404, f"no figure `{key[:100]}`; valid: {', '.join(FIGURES)}")
        options: dict[str, str | Sequence[str]] = {}
        if key == "slice":
            options["name"] = name
        elif key == "curves" and trials:
            options["chosen"] = tuple(trials.split(",")[:100])
        return JSONResponse(reader.figure(key, **options).to_json())

    def trial(self, sweep: str, trial: str) -> HTMLResponse:
        """Return one trial, with the last lines of its log."""
        reader = self.reader(sweep)
        snapshot = reader.snapshot()
        try:
            state = trial_of(snapshot.study, trial)
        except InputError as e:
            raise HTTPException(404, str(e)) from None
        log, note = read_log(reader.folder, state.id)
        has_ended = snapshot.summary.state_of(state) in page_content.ENDED
        return render(
            "trial.html",
            trial=state,
            result=page_content.facts_of(state, snapshot),
            configuration=dotted_rows(state.trial),
            may_stop=self.may_command and not has_ended,
            log=log,
            note=note,
        )

    async def command(self, sweep: str, request: Request) -> JSONResponse:
        """Send a command to the process that runs a sweep."""
        if COMMAND_HEADER not in request.headers:
            raise HTTPException(403, "a command must have the header `X-Sweeps`")
        if not self.may_command:
            raise HTTPException(403, READ_ONLY)
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_COMMAND_BYTES:
                raise HTTPException(413, f"a command may have at most {MAX_COMMAND_BYTES} bytes")
        return await asyncio.to_thread(self._send, sweep, bytes(body))

    def _send(self, sweep: str, body: bytes) -> JSONResponse:
        folder = self.reader(sweep).folder
        try:
            command = parse(body)
        except CommandError as e:
            raise HTTPException(422, str(e)) from None
        answer = Answer()
        try:
            if not is_driven(folder):
                raise DriverEnded
            with contextlib.suppress(TimeoutError):
                answer = ask(folder, command, ANSWER_SECONDS)
        except DriverEnded:
            raise HTTPException(
                409, f"no process runs the sweep; `sweeps resume {sweep}` continues it"
            ) from None
        except SweepsError as e:
            raise HTTPException(409, str(e)) from None
        if answer.problems:
            raise HTTPException(422 if answer.invalid else 409, "; ".join(answer.problems))
        return JSONResponse({"sent": command.command, "text": answer.text}, 202)

    async def events(self, sweep: str | None = None) -> StreamingResponse:
        """Return a stream of server-sent events.

        There is one event at the start, and one after each change of the sweep, or of any sweep.
        While the reader of a changed sweep rests, the event waits.
        """
        if sweep is not None:
            await asyncio.to_thread(self.reader, sweep)
        return StreamingResponse(
            self._changes(sweep),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _changes(self, sweep: str | None) -> AsyncIterator[str]:
        """Yield the texts of a stream; see `events`."""
        seen: dict[str, str] | None = None
        silent = 0.0
        while not self.ended:
            versions = await asyncio.to_thread(self._versions, sweep)
            if versions != seen:
                seen = versions
                silent = 0.0
                yield "event: change\ndata:\n\n"
            elif silent >= ALIVE_SECONDS:
                silent = 0.0
                yield ": alive\n\n"
            await asyncio.sleep(POLL_SECONDS)
            silent += POLL_SECONDS

    def _versions(self, sweep: str | None) -> dict[str, str]:
        """Return the version of a sweep's folder, or of all sweeps' folders, by name."""
        versions = {}
        for name in self._names() if sweep is None else [sweep]:
            with contextlib.suppress(HTTPException):  # the sweep was removed
                versions[name] = self.reader(name).version()
        return versions


def render(template: str, **context: Any) -> HTMLResponse:
    """Return a part of the page, in which all texts are escaped."""
    return HTMLResponse(TEMPLATES.get_template(template).render(**context))


def read_log(folder: Path, trial: str) -> tuple[str, str]:
    """Return the last lines of a trial's log, and a note about them."""
    try:
        lines = deque(read_logs(folder, trial, rank=None, follow=False), maxlen=LOG_LINES)
    except InputError as e:
        return "", str(e)
    is_cut = len(lines) == LOG_LINES
    note = f"The last lines; `sweeps logs {folder.name} {trial}` prints all." if is_cut else ""
    return "\n".join(CONTROL.sub("", line) for line in lines), note


def make_app(dashboard: Dashboard, access: Access) -> ASGIApp:
    """Return the application.

    Args:
        dashboard: The endpoints.
        access: The allowed hosts and the token. The files of the page need no token, because they
            contain no data.
    """
    data = FastAPI(openapi_url=None)
    data.get("/sweeps")(dashboard.sweeps)
    data.get("/sweeps/{sweep}")(dashboard.sweep)
    data.get("/sweeps/{sweep}/figures/{key}")(dashboard.figure)
    data.get("/sweeps/{sweep}/trials/{trial}")(dashboard.trial)
    data.post("/sweeps/{sweep}/commands")(dashboard.command)
    data.get("/events")(dashboard.events)

    files = FastAPI(openapi_url=None)
    files.get("/")(lambda: FileResponse(STATIC / "index.html"))
    files.get("/plotly.min.js")(
        lambda: FileResponse(html_page.plotly_file(), headers={"cache-control": "max-age=86400"})
    )
    files.mount("/report", StaticFiles(directory=html_page.STATIC))
    files.mount("/page", StaticFiles(directory=STATIC))

    app = FastAPI(openapi_url=None)
    app.mount("/api", TokenGuard(data, access))
    app.mount("/", files)
    app.add_middleware(SafeHeaders)
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    if access.hosts:
        app.add_middleware(AllowedHosts, allowed_hosts=access.hosts, www_redirect=False)
    return app


class SafeHeaders:
    """ASGI middleware that adds a content security policy and other headers to every answer."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self.app(scope, receive, with_headers)
