"""Remove passwords and keys from texts, so that these secrets are neither printed nor stored.

A process remembers the values of the secrets that it uses, and replaces them in each text that it
prints, stores or sends. Other secrets are only recognized in URIs.
"""

from __future__ import annotations

import functools
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TextIO
from urllib.parse import quote, quote_plus, unquote, unquote_plus

# `://USER:PASSWORD@` inside a text. A password may have unencoded slashes. A port before a path is
# not a password.
_PASSWORD = re.compile(
    r"(://[^\s/:@'\"\[]*):(?:[^\s/@'\"]*(?:/[^\s/@'\"]*)?|(?!\d*[/?#])[^\s@'\"]*)@"
)
# `USER:PASSWORD@` at the start of the text after `://`, if the password has an unencoded `/`, `?`
# or `#`.
_UNQUOTED = re.compile(r"([^/?#:@\[]*):(?!\d*(?:[/?#]|\Z))([^@/?#]*[/?#][^@]*)@(.*)", re.S)
# `?NAME=VALUE` or `&NAME=VALUE` inside a text.
_QUERY = re.compile(r"([?&]([^\s=&?'\"`]+)=)([^\s&'\"`#]+)")
# A quoted scalar, or the rest of a plain scalar, in a YAML file.
_SCALAR = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^\s,}][^,}\n]*"
# Shorter values stay visible in most texts, because such a value may be a common word or number.
LONG_VALUE = 8
# Between the parts of a secret, such as the lines of a private key or the strings of a JSON object.
_SEPARATOR = re.compile(r"[\s\"']+|\\n")
_SECRET_NAME = re.compile(
    r"(?!sslkey\Z)"  # in libpq, this is the path of a file, not a secret
    r"(?:.*(?:token(?!iz)|secret|passw|pwd|signature|credential|authorization).*"
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
    """Return a URI without its password, and without those query parameters that hold secrets.

    The result may be stored and printed.

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


# What `hide_known` replaces. The longest comes first, because a secret may be a part of another
# one.
_known: tuple[str, ...] = ()


def remember(value: str) -> None:
    """Hide a secret in the texts of this process from now on.

    The value, its words and lines, and the passwords in a URI are hidden. Values, words and lines
    with fewer than `LONG_VALUE` characters stay visible.
    """
    global _known
    parts = {value, *_SEPARATOR.split(value)}
    for secret in secrets_in(value) if "://" in value else ():
        parts |= {secret.written, secret.value}
    known = set(_known)
    for part in parts:
        if len(part) >= LONG_VALUE:
            known |= _forms(part)
    _known = tuple(sorted(known, key=len, reverse=True))


def _forms(value: str) -> set[str]:
    """Return a secret as it is written in texts: plain, escaped, percent-encoded and in HTML."""
    encoded = value.encode(errors="surrogatepass")
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        ascii(value)[1:-1],
        repr(encoded)[2:-1],
        quote(encoded),
        quote(encoded, safe=""),
        quote_plus(encoded),
        html.escape(value),
    }


def remember_uri(uri: str) -> None:
    """Hide a URI in the texts of this process from now on, if the URI contains secrets."""
    if secrets_in(uri):
        remember(uri)


def remember_variables(names: Iterable[str]) -> None:
    """Hide the values of environment variables in the texts of this process from now on."""
    for name in names:
        remember(os.environ.get(name, ""))


def any_known() -> bool:
    """Return whether this process remembers a secret."""
    return bool(_known)


def hide_known(text: str) -> str:
    """Replace each secret that this process remembers by `***`, also if it is escaped."""
    for form in _known:
        text = text.replace(form, "***")
    return text


def hide_known_bytes(data: bytes) -> bytes:
    """Replace secrets as `hide_known` does, in output that may not be valid UTF-8."""
    text = hide_known(data.decode(errors="surrogateescape"))
    return text.encode(errors="surrogateescape")


def hide_in_output(*streams: TextIO) -> None:
    """Hide secrets that this process remembers in all later texts of these streams."""
    for stream in streams:
        # The stream itself is changed, because handlers of loggers refer to it.
        stream.write = functools.partial(_write_hidden, stream.write)  # type: ignore[method-assign]
        stream.writelines = functools.partial(_write_lines, stream)  # type: ignore[method-assign]


def _write_hidden(write: Callable[[str], int], text: str) -> int:
    write(hide_known(text))
    return len(text)


def _write_lines(stream: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        stream.write(line)


def masked(text: str) -> str:
    """Replace the secrets in a text by `***`.

    They are known secrets, and the password and the secret query parameters of each URI.

    >>> masked("API request to http://me:secret@host/api?token=abc failed")
    'API request to http://me:***@host/api?token=*** failed'
    """
    text = hide_known(text)
    return _QUERY.sub(
        lambda match: f"{match[1]}***" if _is_secret(match[2]) else match[0],
        _PASSWORD.sub(r"\1:***@", text),
    )


def hide_values(text: str, variables: Mapping[str, str]) -> str:
    """Return a text in which `***` replaces the values of environment variables.

    The text is that of a space file or of a `--set` option.

    Args:
        text: The text.
        variables: The values to hide, by the name of the environment variable.

    >>> hide_values("env_vars: {TOKEN: 'abc', LEVEL: 3}", {"TOKEN": "abc", "LEVEL": "3"})
    "env_vars: {TOKEN: '***', LEVEL: '***'}"
    """
    for name, value in variables.items():
        # A long value is hidden everywhere, because the file may hold it in an anchor or in a block
        # of several lines.
        for part in sorted({value, *value.split()}, key=len, reverse=True):
            text = text.replace(part, "***") if len(part) >= LONG_VALUE else text
        text = re.sub(
            rf"(?<![\w-])(['\"]?{re.escape(name)}['\"]?\s*[:=]\s*)({_SCALAR})", r"\1'***'", text
        )
    return text


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether an environment variable holds a secret.

    Its name says so, or its value is a URI with a password or a key.

    >>> is_secret_variable("DB_PASSWORD", "x"), is_secret_variable("DB", "rows.db")
    (True, False)
    >>> is_secret_variable("DB", "postgresql://me:x@host/db")
    True
    """
    if name in ("PWD", "OLDPWD"):  # working directories
        return False
    named = (
        re.search(r"(?:^|_)(?:pass|pw|pat|dsn|token|key|secret|auth|credentials?)$", name, re.I)
        is not None
    )
    return named or _is_secret(name) or ("://" in value and bool(secrets_in(value)))


def _is_secret(name: str) -> bool:
    """Return whether a query parameter of this name holds a secret."""
    return _SECRET_NAME.fullmatch(unquote_plus(name)) is not None


def _parts(uri: str) -> tuple[str, str, str]:
    """Split a URI into the URI without password and query, the password, and the query.

    The password is as it is written in the URI.
    """
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
