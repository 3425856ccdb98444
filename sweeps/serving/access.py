"""Check the bearer token and the Host header of requests."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sweeps.core.errors import InputError

TOKEN_VARIABLE = "SWEEPS_SERVE_TOKEN"
# A bearer token, by RFC 6750.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# A name, a name after `*.`, an IPv4 address, or an IPv6 address in brackets.
HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\]")
TOKEN_RULE = (
    "the request must have the header `Authorization: Bearer TOKEN` with the server's token"
)
# The path that is never checked: a load balancer sends no token, and an address in place of a name.
OPEN_PATH = "/health"


@dataclass(frozen=True)
class Access:
    """The allowed hosts and the token. By default every request is allowed.

    Attributes:
        hosts: The allowed values of the Host header, in lower case. `*.example.com` allows all
            subdomains. An empty tuple allows any host.
        digest: SHA-256 of the token; None if no token is required.
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
        for name in names:
            if not HOST.fullmatch(name):
                rule = (
                    f"`{name}`: must be a name or an address without scheme and port, such as"
                    " `example.com`, `*.example.com`, `10.0.0.7` or `[::1]`"
                )
                raise InputError("--allowed-hosts", rule)
        return cls(tuple(names), None if token is None else _digest(token))

    def allows(self, scope: Scope) -> bool:
        """Return whether a request has the token, or whether none is required."""
        if self.digest is None:
            return True
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        digest = _digest(token.strip())
        return scheme.lower() == "bearer" and hmac.compare_digest(digest, self.digest)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def token_of(token: str | None, file: Path | None) -> str | None:
    """Return the token from the command line, a file, or the variable `SWEEPS_SERVE_TOKEN`.

    Return None if no token is given. Error messages never contain the token.

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
        place = TOKEN_VARIABLE
        token = os.environ.get(TOKEN_VARIABLE)
    if token is not None and not TOKEN.fullmatch(token):
        text = "is empty" if not token else "has invalid characters"
        raise InputError(
            place,
            f"the token {text}; a token may contain letters, digits and `-._~+/`, and may end in "
            "`=`",
        )
    return token


def open_to_others(host: str) -> bool:
    """Return True if another machine can reach a server that listens on `host`.

    Return True too if `host` cannot be resolved here.
    """
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


class AllowedHosts(TrustedHostMiddleware):
    """Starlette's check of the Host header, except for requests for `/health`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or refuse it."""
        app = self.app if scope.get("path") == OPEN_PATH else super().__call__
        await app(scope, receive, send)


class TokenGuard:
    """ASGI middleware that refuses requests without the token, except for `/health`."""

    def __init__(self, app: ASGIApp, access: Access):
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or refuse it."""
        is_checked = scope["type"] == "http" and scope["path"] != OPEN_PATH
        if not is_checked or self.access.allows(scope):
            await self.app(scope, receive, send)
            return
        body = {"detail": [{"rule": TOKEN_RULE}]}
        refusal = JSONResponse(body, 401, {"www-authenticate": "Bearer"})
        await refusal(scope, receive, send)
