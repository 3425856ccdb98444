"""The ASGI application of a bundle: `/predict`, `/health`, `/schema`, `/example`, `/metrics`, `/openapi.json`, and a page at `/docs`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import pydantic_core
from fastapi import FastAPI, Request, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from sweeps.bundle.model import Bundle
from sweeps.core.errors import InputError, Problem
from sweeps.core.label_columns import shown
from sweeps.data.column_values import InvalidValue
from sweeps.serving import request_checks
from sweeps.serving.access import Access, Guard, Receive, Send
from sweeps.serving.batching import Batcher
from sweeps.serving.docs_page import POLICY, docs_page
from sweeps.serving.example import example_of
from sweeps.serving.limits import Limits
from sweeps.serving.request_checks import Refused, Rows

JSON = "application/json"
PATHS = ("/predict", "/health", "/schema", "/example", "/metrics")
DEFAULT, OPEN = Limits(), Access()
SHUT_DOWN = "the server shut down before the model answered"
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON, or the Host header is not allowed."},
    401: {"description": "The token is missing or wrong."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "The body is too large, or it has too many rows."},
    415: {"description": "The content type is not JSON."},
    422: {"description": "Fields are missing or have invalid values."},
    503: {"description": "The server shut down before the model answered."},
}


class Metrics:
    """Prometheus metrics of the server, in a registry of their own.

    Args:
        replica: Name of this replica if several replicas share an address; otherwise None. The name
            becomes a label of every series, so that Prometheus keeps the series of different
            replicas apart.
    """

    def __init__(self, replica: str | None = None) -> None:
        self.replica = replica
        self.registry = CollectorRegistry()
        where: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "sweeps_requests", "Answered requests.", ["path", "status"], **where
        )
        self.seconds = Histogram(
            "sweeps_request_seconds",
            "Time from the first byte of the body to the answer.",
            ["path"],
            **where,
        )
        self.rows = Counter("sweeps_rows", "Predicted rows.", **where)
        self.unseen = Gauge(
            "sweeps_unseen_values",
            "Values that the model treats as missing: unknown categories, and texts that do not "
            "fit their rule.",
            ["column"],
            **where,
        )
        self.batch = Histogram(
            "sweeps_batch_rows",
            "Rows of one batch for the model.",
            buckets=[4**i for i in range(8)],
            **where,
        )
        self.working = Gauge(
            "sweeps_requests_in_flight", "Requests to /predict without an answer yet.", **where
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. `generate_latest` calls this method."""
        for family in self.registry.collect():
            if self.replica is not None:
                family.samples = [
                    s._replace(labels={"replica": self.replica, **s.labels}) for s in family.samples
                ]
            yield family


class Counted:
    """ASGI middleware that counts requests.

    It is four times as fast as Starlette's `BaseHTTPMiddleware`.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request to the application, and count its path and status."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def send_and_record(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            self.metrics.requests.labels(
                scope["path"] if scope["path"] in PATHS else "other", status
            ).inc()


def predict_batch(bundle: Bundle, batch: list[Rows]) -> list[bytes]:
    """Predict the rows of several requests in one call of the model.

    Args:
        bundle: The bundle whose preprocessor and model are used.
        batch: The checked rows of each request.

    Returns:
        The JSON body of each answer.

    Raises:
        InputError: The preprocessor or the model refuses some of the rows.
    """
    joined = {
        c.name: [v for rows in batch for v in rows.values[c.name]] for c in bundle.manifest.columns
    }
    bundle.count_unseen(joined)
    frame = bundle.predict_values(joined, sum(rows.count for rows in batch))
    predictions = {str(name): frame[name].to_numpy().tolist() for name in frame.columns}
    answers, start = [], 0
    for rows in batch:
        part = {name: values[start : start + rows.count] for name, values in predictions.items()}
        answer = (
            part
            if rows.by_column
            else [
                dict(zip(part, values, strict=True)) for values in zip(*part.values(), strict=True)
            ]
        )
        answers.append(pydantic_core.to_json({"predictions": answer}, inf_nan_mode="null"))
        start += rows.count
    return answers


def _problem_body(problem: Problem) -> dict[str, Any]:
    """Return a problem as an entry of the answer's `detail`, in the format of `request_checks.Refused.problems`."""
    if isinstance(problem, InvalidValue):
        return {
            "field": problem.column,
            "row": problem.row,
            "rule": problem.rule,
            "value": request_checks.short(problem.value),
        }
    return {"rule": f"{problem.place}: {problem.text}"}


def require_columns(bundle: Bundle) -> None:
    """Raise an error if a bundle has no columns, because its requests cannot be checked.

    The training loop of such a bundle read its own data.

    Raises:
        InputError: The bundle has no columns.
    """
    if not bundle.manifest.columns:
        reason = (
            "the training loop read its own data, so the columns of a request are unknown; use "
            "`sweeps predict` or `sweeps.load_bundle`"
        )
        raise InputError(str(bundle.path), f"cannot be served: {reason}")


class _Endpoints:
    """Handlers of the requests for `/predict`, `/health`, `/schema` and `/metrics`."""

    def __init__(self, bundle: Bundle, limits: Limits, replica: str | None, example: bool):
        self.bundle, self.limits, self.manifest, self.metrics = (
            bundle,
            limits,
            bundle.manifest,
            Metrics(replica),
        )
        self.batcher: Batcher[Rows] = Batcher(self._predict_batch, lambda rows: rows.count)
        self.request_schema, self.answer_schema = request_checks.schemas(
            self.manifest.columns,
            self.manifest.classes,
            limits.max_rows,
            self.manifest.label,
            self.manifest.task,
        )
        self.example_body = example_of(bundle) if example else None
        facts = self.manifest.training
        self.about = {
            key: facts[key]
            for key in ("sweep", "trial", "metric", "value")
            if facts.get(key) is not None
        }
        if self.manifest.members:
            self.about["members"] = self.manifest.members_text

    def _predict_batch(self, batch: list[Rows]) -> list[bytes]:
        self.metrics.batch.observe(sum(rows.count for rows in batch))
        return predict_batch(self.bundle, batch)

    async def predict(self, request: Request) -> Response:
        start = time.perf_counter()
        self.metrics.working.inc()
        try:
            rows = request_checks.read(
                await _body(request, self.limits), self.manifest.columns, self.limits.max_rows
            )
            answer = await self.batcher.ask(rows)
            self.metrics.rows.inc(rows.count)
            return Response(answer, media_type=JSON)
        except Refused as e:
            headers = {"connection": "close"} if e.status == 408 else None
            return Response(pydantic_core.to_json(e.body()), e.status, headers, media_type=JSON)
        except InputError as e:
            return Response(
                pydantic_core.to_json({"detail": [_problem_body(p) for p in e.problems]}),
                422,
                media_type=JSON,
            )
        except ClientDisconnect:  # the client closed the connection; nginx uses 499 for this, too
            return Response(status_code=499)
        finally:
            self.metrics.working.dec()
            self.metrics.seconds.labels("/predict").observe(time.perf_counter() - start)

    async def health(self) -> dict[str, Any]:
        return {"status": "ok", **self.about}

    async def schema(self) -> dict[str, Any]:
        return {
            "columns": [
                {"name": c.name, "type": c.type, "rule": request_checks.rule_of(c)}
                for c in self.manifest.columns
            ],
            **self.manifest.model_dump(include={"label", "task", "classes", "positive"}),
            "request": self.request_schema,
            "answer": self.answer_schema,
        }

    async def example(self) -> Any:
        if self.example_body is None:
            return Response(
                pydantic_core.to_json({"detail": [{"rule": "the server shows no example row"}]}),
                404,
                media_type=JSON,
            )
        return self.example_body

    async def docs(self, request: Request) -> Response:
        app, about = request.app, await self.schema()
        page = docs_page(
            app.title, app.description, self.about, about["columns"], self.example_body
        )
        return HTMLResponse(page, headers={"content-security-policy": POLICY})

    async def root(self) -> Response:
        return RedirectResponse("docs")  # relative, because a proxy may add a prefix

    async def prometheus(self) -> Response:
        for name, count in self.bundle.unseen.items():
            self.metrics.unseen.labels(name).set(count)
        return Response(generate_latest(self.metrics), media_type=CONTENT_TYPE_LATEST)


def make_app(
    bundle: Bundle,
    limits: Limits = DEFAULT,
    access: Access = OPEN,
    replica: str | None = None,
    example: bool = True,
) -> FastAPI:
    """Return the ASGI application that serves a bundle.

    Args:
        bundle: Bundle to serve, already loaded.
        limits: Limits on a request.
        access: The allowed hosts and the token.
        replica: Name of this replica if several replicas share an address; otherwise None.
        example: True to show one of the bundle's example rows at `/docs`, `/example` and
            `/openapi.json`.

    Returns:
        The application. Its function `state.cancel_waiting` gives every request that waits for the
        model the answer 503.

    Raises:
        InputError: The bundle has no columns (see `require_columns`).
    """
    require_columns(bundle)
    endpoints, manifest = _Endpoints(bundle, limits, replica, example), bundle.manifest

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        endpoints.batcher.close()

    predicts = shown(manifest.label) or "a model's output"
    description = f"Predict {predicts} from raw rows. Unknown fields are ignored."
    title = str(endpoints.about.get("sweep", "sweeps"))
    # FastAPI's own page loads its scripts from the network.
    app = FastAPI(
        title=title,
        description=description,
        version=manifest.created,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    # The last middleware is the outermost, so refused requests are counted, too.
    app.add_middleware(Guard, access=access)
    app.add_middleware(Counted, metrics=endpoints.metrics)
    app.state.cancel_waiting = lambda: endpoints.batcher.cancel_waiting(
        lambda: Refused(503, [{"rule": SHUT_DOWN}])
    )
    content: dict[str, Any] = {JSON: {"schema": endpoints.request_schema}}
    if (
        endpoints.example_body is not None
        and None not in endpoints.example_body["records"][0].values()
    ):  # FastAPI leaves null out
        content[JSON]["example"] = endpoints.example_body
    answers: dict[int | str, dict[str, Any]] = {
        200: {"content": {JSON: {"schema": endpoints.answer_schema}}},
        **ERRORS,
    }
    extra = {"requestBody": {"required": True, "content": content}}
    app.post("/predict", summary="Predict rows", openapi_extra=extra, responses=answers)(
        endpoints.predict
    )
    app.get("/health", summary="Check that the server is running")(endpoints.health)
    app.get("/schema", summary="The fields of a row and of an answer")(endpoints.schema)
    app.get(
        "/example",
        summary="The body of an example request",
        responses={404: {"description": "The server shows no example row."}},
    )(endpoints.example)
    app.get("/docs", include_in_schema=False)(endpoints.docs)
    app.get("/", include_in_schema=False)(endpoints.root)
    app.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)(
        endpoints.prometheus
    )
    return app


async def _body(request: Request, limits: Limits) -> bytes:
    """Read the body of a request.

    Raises:
        Refused: The body is too large, arrives too slowly, or its content type is not JSON.
    """
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        raise Refused(415, [{"rule": f"the body must be {JSON}, not {kind[:60]}"}])
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, [{"rule": "the body must not be compressed (Content-Encoding)"}])
    too_large = Refused(413, [{"rule": f"the body must have at most {limits.max_bytes} bytes"}])
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_bytes:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.receive_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.max_bytes:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise Refused(
            408, [{"rule": f"the body must arrive within {limits.receive_seconds:g} s"}]
        ) from None
    return b"".join(parts)
