"""Send requests to an ASGI application without a server."""

from __future__ import annotations

import asyncio
import json
from typing import Any


async def ask(
    app: Any,
    path: str,
    body: bytes | list[bytes | None] = b"",
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> Any:
    """Send one request, and return the status and the body. A JSON body is parsed.

    If the request's body is a list, its parts are sent one by one, without a length. At the part
    None, the client disconnects.
    """
    parts = [body] if isinstance(body, bytes) else list(body)
    given = (
        {"content-type": "application/json"}
        | ({"content-length": str(len(body))} if isinstance(body, bytes) else {})
        | (headers or {})
    )
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(k.encode(), v.encode()) for k, v in given.items() if v is not None],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    messages: list[dict[str, Any]] = [
        {"type": "http.disconnect"}
        if part is None
        else {"type": "http.request", "body": part, "more_body": i + 1 < len(parts)}
        for i, part in enumerate(parts)
    ]
    sent: list[dict[str, Any]] = []
    never = asyncio.Event()

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        await never.wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    raw = b"".join(m.get("body", b"") for m in sent)
    try:
        return sent[0]["status"], json.loads(raw)
    except ValueError:
        return sent[0]["status"], raw.decode(errors="replace")
