"""Remove passwords and keys from texts, so that these secrets are neither printed nor stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

# `://USER:PASSWORD@` inside a text. A password may have unencoded slashes. A port before a path is not a password.
_PASSWORD = re.compile(
    r"(://[^\s/:@'\"\[]*):(?:[^\s/@'\"]*(?:/[^\s/@'\"]*)?|(?!\d*[/?#])[^\s@'\"]*)@"
)
# `USER:PASSWORD@` at the start of the text after `://`, if the password has an unencoded `/`, `?` or `#`.
_UNQUOTED = re.compile(r"([^/?#:@\[]*):(?!\d*(?:[/?#]|\Z))([^@/?#]*[/?#][^@]*)@(.*)", re.S)
# `?NAME=VALUE` or `&NAME=VALUE` inside a text.
_QUERY = re.compile(r"([?&]([^\s=&?'\"`]+)=)([^\s&'\"`#]+)")
# A quoted scalar, or the rest of a plain scalar, in a YAML file.
_SCALAR = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^\s,}][^,}\n]*"
LONG_VALUE = 8
_SECRET_NAME = re.compile(
    r"(?!sslkey\Z)"  # in libpq, this is the path of a file, not a secret
    r"(?:.*(?:token|secret|passw|pwd|signature|credential|authorization).*"
    r"|.*(?:key|sig|auth)(?:[-_]?id)?|pass|options|odbc_connect)",
    re.I | re.S,
)


class Secret(NamedTuple):
    """One secret of a URI.

    Attributes:
        name: The text `password`, or the name of the query parameter that holds the secret.
        written: The secret as written in the URI, percent-encoded.
        value: The decoded secret.
    """

    name: str
    written: str
    value: str


def without_password(uri: str) -> str:
    """Return a URI without its password, and without those query parameters that hold secrets. The result may be stored and printed.

    >>> without_password("postgresql://me:secret@host/db?sslmode=require&options=-c%20x")
    'postgresql://me@host/db?sslmode=require'
    """
    bare, _, query = _parts(uri)
    public = "&".join(part for part in query.split("&") if not _is_secret(part.partition("=")[0]))
    return f"{bare}?{public}" if public else bare


def secrets_in(uri: str) -> list[Secret]:
    """Return the secrets that `without_password` removes, the password first."""
    _, password, query = _parts(uri)
    secrets = [Secret("password", password, unquote(password))] if password else []
    for part in query.split("&"):
        name, _, written = part.partition("=")
        if written and _is_secret(name):
            secrets.append(Secret(unquote_plus(name), written, unquote_plus(written)))
    return secrets


def masked(text: str) -> str:
    """Replace the password and the secret query parameters of each URI in a text by `***`.

    >>> masked("API request to http://me:secret@host/api?token=abc failed")
    'API request to http://me:***@host/api?token=*** failed'
    """
    return _QUERY.sub(
        lambda match: f"{match[1]}***" if _is_secret(match[2]) else match[0],
        _PASSWORD.sub(r"\1:***@", text),
    )


def hide_values(text: str, variables: Mapping[str, str]) -> str:
    """Return the text of a space file or of a `--set` option in which `***` replaces the values of environment variables.

    Args:
        text: The text.
        variables: The values to hide, by the name of the environment variable.

    >>> hide_values("env_vars: {TOKEN: 'abc', LEVEL: 3}", {"TOKEN": "abc", "LEVEL": "3"})
    "env_vars: {TOKEN: '***', LEVEL: '***'}"
    """
    for name, value in variables.items():
        # A long value is hidden everywhere, because the file may hold it in an anchor or in a block of several lines.
        for part in sorted({value, *value.split()}, key=len, reverse=True):
            text = text.replace(part, "***") if len(part) >= LONG_VALUE else text
        text = re.sub(
            rf"(?<![\w-])(['\"]?{re.escape(name)}['\"]?\s*[:=]\s*)({_SCALAR})", r"\1'***'", text
        )
    return text


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether an environment variable holds a secret: its name says so, or its value is a URI with a password or a key.

    >>> is_secret_variable("DB_PASSWORD", "x"), is_secret_variable("DB", "postgresql://me:x@host/db"), is_secret_variable("DB", "rows.db")
    (True, True, False)
    """
    named = (
        re.search(r"(?:^|_)(?:pass|pw|pat|dsn|token|key|secret|auth|credentials?)$", name, re.I)
        is not None
    )
    return named or _is_secret(name) or ("://" in value and bool(secrets_in(value)))


def _is_secret(name: str) -> bool:
    """Return whether a query parameter of this name holds a secret."""
    return _SECRET_NAME.fullmatch(unquote_plus(name)) is not None


def _parts(uri: str) -> tuple[str, str, str]:
    """Split a URI into three texts: the URI without password and query, the password as it is written in the URI, and the query."""
    scheme, separator, rest = uri.partition("://")
    if (unquoted := _UNQUOTED.match(rest)) is not None:
        name, password, rest = unquoted.groups()
        rest, _, query = rest.partition("?")
        return f"{scheme}{separator}{name}@{rest}", password, query
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    name, _, password = user.partition(":")
    return f"{scheme}{separator}{name}{at}{host}{slash}{path}", password, query
