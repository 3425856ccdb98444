"""Check the Host header and the bearer token of requests."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, Problem

VARIABLE = "SWEEPS_SERVE_TOKEN"
# A bearer token, by RFC 6750.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\]")
# The Host header of a client: a host, with or without a port.
SENT_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\[\]:]+)(:\d*)?")
OPEN_PATH = "/health"


@dataclass(frozen=True)
class Access:
    """The allowed hosts and the token. By default every request is allowed.

    Attributes:
        hosts: The allowed values of the Host header, in lower case. `*.example.com` allows all
            subdomains. An empty tuple allows any host.
        digest: SHA-256 of the token; None if no token is required. Replicas receive this hash
            instead of the token.
    """

    hosts: tuple[str, ...] = ()
    digest: bytes | None = None

    @classmethod
    def of(cls, hosts: str | None, token: str | None) -> Access:
        """Create the access rules from the options of `sweeps serve`.

        Args:
            hosts: The allowed hosts, separated by commas; None to allow any host.
            token: The token; None to require no token.

        Raises:
            InputError: A host is not a valid name or address.
        """
        names = [h.strip().lower() for h in hosts.split(",")] if hosts is not None else []
        text = (
            "must be a name or an address without scheme and port, such as `example.com`, "
            "`*.example.com`, `10.0.0.7` or `[::1]`"
        )
        if wrong := [
            Problem("--allowed-hosts", f"`{name}`: {text}")
            for name in names
            if not HOST.fullmatch(name)
        ]:
            raise InputError(wrong)
        return cls(tuple(names), None if token is None else _digest(token))

    def refusal(self, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Return None if a request is allowed.

        Otherwise return the HTTP status of the refusal and the rule that the request breaks.
        """
        given = {name.lower(): value.decode("latin-1") for name, value in headers}
        if self.hosts:
            sent = SENT_HOST.fullmatch(given.get(b"host", "").lower())
            if sent is None or not any(_matches(sent["host"], host) for host in self.hosts):
                return 400, "the host in the Host header is not allowed"
        if self.digest is not None:
            scheme, _, token = given.get(b"authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(
                _digest(token.strip()), self.digest
            ):
                return (
                    401,
                    (
                        "the request must have the header `Authorization: Bearer TOKEN` with the "
                        "server's token"
                    ),
                )
        return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _matches(sent: str, host: str) -> bool:
    return sent.endswith(host[1:]) if host.startswith("*.") else sent == host


def token_of(token: str | None, file: Path | None) -> str | None:
    """Return the token from the command line, a file, or the environment variable `SWEEPS_SERVE_TOKEN`. Return None if no token is given.

    Error messages never contain the token.

    Raises:
        InputError: `token` and `file` are both given, the file cannot be read, or the token is
            empty or has invalid characters.
    """
    if token is not None and file is not None:
        raise InputError("--token", "must not be given together with --token-file")
    place = "--token"
    if file is not None:
        place = f"--token-file {file}"
        try:
            token = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as e:
            raise InputError(
                place, f"cannot be read: {getattr(e, 'strerror', None) or 'it is not a text file'}"
            ) from None
    elif token is None:
        place, token = VARIABLE, os.environ.get(VARIABLE)
    if token is not None and not TOKEN.fullmatch(token):
        text = "is empty" if not token else "has invalid characters"
        raise InputError(
            place,
            f"the token {text}; a token may contain letters, digits and `-._~+/`, and may end in "
            "`=`",
        )
    return token


def open_to_others(host: str) -> bool:
    """Return True if another machine can reach a server that listens on `host`, or if `host` cannot be resolved here."""
    try:
        addresses = socket.getaddrinfo(
            host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return not all(
            ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
            for *_, address in addresses
        )
    except (OSError, ValueError):  # perhaps only the head node of a cluster can resolve the name
        return True


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """ASGI middleware that refuses the requests which `access` does not allow.

    A GET request for `/health` is always answered, so that a load balancer can check the server. If
    `access` does not allow the request, the answer contains no facts about the model.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], access: Access):
        self.app, self.access = app, access

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request to the application, or refuse it."""
        refused = self.access.refusal(scope["headers"]) if scope["type"] == "http" else None
        if refused is None:
            await self.app(scope, receive, send)
            return
        from starlette.responses import JSONResponse

        status, rule = refused
        answer = JSONResponse(
            {"detail": [{"rule": rule}]},
            status,
            {"www-authenticate": "Bearer"} if status == 401 else None,
        )
        if scope["path"] == OPEN_PATH and scope["method"] == "GET":
            answer = JSONResponse({"status": "ok"})
        await answer(scope, receive, send)
