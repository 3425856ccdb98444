"""Remove passwords and keys from texts, so that these secrets are neither printed nor stored.

A process remembers the values of the secrets that it uses, and replaces them in each text that it
prints, stores or sends. Other secrets are only recognized in URIs.
"""

import functools
import json
import os
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TextIO
from urllib.parse import unquote, unquote_plus

# `://USER:PASSWORD@` inside a text. A password may have unencoded slashes. A port before a path is
# not a password.
_PASSWORD = re.compile(
    r"(://[^\s/:@'\"\[]*):(?:[^\s/@'\"]*(?:/[^\s/@'\"]*)?|(?!\d*[/?#])[^\s@'\"]*)@"
)
# `USER:PASSWORD@` at the start of the text after `://`, if the password has an unencoded `/`, `?`
# or `#`.
_UNENCODED_PASSWORD = re.compile(
    r"([^/?#:@\[]*):(?!\d*(?:[/?#]|\Z))([^@/?#]*[/?#][^@]*)@(.*)", re.S
)
# `?NAME=VALUE` or `&NAME=VALUE` inside a text.
_QUERY = re.compile(r"([?&]([^\s=&?'\"`]+)=)([^\s&'\"`#]+)")
# A quoted scalar, or the rest of a plain scalar, in a YAML file.
_SCALAR = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^\s,}][^,}\n]*"
# Number of characters. Shorter values stay visible in most texts, because such a value may be a
# common word or number.
LONG_VALUE = 8
# The text between the parts of a secret, such as the lines of a private key or the strings of a
# JSON object.
_SEPARATOR = re.compile(r"[\s\"']+|\\n")
# Characters that every format leaves as they are. The pieces of a secret are runs of them, runs of
# quotes and backslashes, and single other characters.
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}_.-")
_PIECE = re.compile(r"[A-Za-z0-9_.-]+|[\\'\"]+|.", re.S)
# Any number of backslashes in any format, because each format may escape the text again.
_BACKSLASHES = r"(?:\\|%(?:25)*5c)*+"
# One quote or backslash in any format. A shell and YAML write several of them for one.
_QUOTE = (
    r"(?:\\[ux]0*2[27]|[\\'\"]|%(?:25)*(?:22|27|5c)"
    r"|&(?:amp;)*(?:#0*3[49]|#x0*2[27]|quot|apos);)"
)
# Further forms of a character: as the name of an entity of HTML, in the query of a URL, and in an
# indented block.
_FORMS = {
    "&": ["&(?:amp;)+"],
    "<": ["&(?:amp;)*lt;"],
    ">": ["&(?:amp;)*gt;"],
    " ": [r"\+", "%(?:25)*2b"],
    "\n": [r"\s+"],
}
# Names of query parameters and environment variables that hold secrets.
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
    bare, _, query = _split_uri(uri)
    public = "&".join(part for part in query.split("&") if not _is_secret(part.partition("=")[0]))
    return f"{bare}?{public}" if public else bare


def secrets_in(uri: str) -> list[Secret]:
    """Return the secrets that `without_password` removes, the password first."""
    _, password, query = _split_uri(uri)
    secrets = [Secret("password", password, unquote(password))] if password else []
    for part in query.split("&"):
        name, _, written = part.partition("=")
        if written and _is_secret(name):
            secrets.append(Secret(unquote_plus(name), written, unquote_plus(written)))
    return secrets


class _KnownSecret(NamedTuple):
    """A secret that `hide_known` replaces.

    Attributes:
        value: The secret.
        plain: A part of the secret that every format leaves as it is. `in` finds it faster than a
            regular expression.
        pattern: Matches the secret in all formats.
    """

    value: str
    plain: str
    pattern: re.Pattern[str]


# The longest first, because a secret may be a part of another one
_known: tuple[_KnownSecret, ...] = ()


def remember(value: str) -> None:
    """Hide a secret in the texts of this process from now on.

    The value, its words and lines, and the passwords in a URI are hidden. Values, words and lines
    with fewer than `LONG_VALUE` characters stay visible.
    """
    global _known
    parts = {value, *_SEPARATOR.split(value)}
    if "://" in value:
        for secret in secrets_in(value):
            parts |= {secret.written, secret.value}
    known = {secret.value: secret for secret in _known}
    for part in parts - known.keys():
        if len(part) >= LONG_VALUE:
            pieces = _PIECE.findall(part)
            plain = max((piece for piece in pieces if piece[0] in _PLAIN), key=len, default="")
            known[part] = _KnownSecret(part, plain, _pattern(pieces))
    _known = tuple(sorted(known.values(), key=lambda secret: len(secret.value), reverse=True))


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
    """Replace each secret that this process remembers by `***`.

    The secret may be escaped, percent-encoded or in HTML, even several times.
    """
    for secret in _known:
        if secret.plain in text:
            text = secret.pattern.sub("***", text)
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


def _write_hidden(write: Callable[[str], int], text: str) -> int:
    write(hide_known(text))
    return len(text)


def _pattern(pieces: list[str]) -> re.Pattern[str]:
    """Return the regular expression of a secret, given its pieces."""
    # A match starts at the first of several backslashes, so that the expression does not try each
    # of them.
    start = "" if pieces[0][0] in _PLAIN else r"(?<!\\)"
    return re.compile(start + "".join(map(_piece_pattern, pieces)), re.I)


def _piece_pattern(piece: str) -> str:
    """Return a regular expression for a piece of a secret.

    The piece may be escaped, percent-encoded or in HTML, even several times.
    """
    if piece[0] in _PLAIN:
        return re.escape(piece)
    if piece[0] in "\\'\"":
        return f"{_QUOTE}{{{len(piece)},}}+"
    code = ord(piece)
    encoded = piece.encode(errors="surrogatepass")
    percent = "".join(f"%(?:25)*{byte:02x}" for byte in encoded)
    entity = f"&(?:amp;)*(?:#0*{code}|#x0*{code:x});"
    choices = [re.escape(piece), percent, f"[ux]0*{code:x}", entity, *_FORMS.get(piece, ())]
    if not " " <= piece <= "~":
        escapes = {json.dumps(piece)[2:-1], repr(encoded)[3:-1]}
        choices += (escape.replace("\\", _BACKSLASHES) for escape in escapes)
    return f"{_BACKSLASHES}(?:{'|'.join(choices)})"


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
            if len(part) >= LONG_VALUE:
                text = text.replace(part, "***")
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
    # An environment variable may have a shorter name than a query parameter, such as `GITHUB_PAT`.
    ends_like_secret = re.search(
        r"(?:^|_)(?:pass|pw|pat|dsn|token|key|secret|auth|credentials?)$", name, re.I
    )
    if ends_like_secret or _is_secret(name):
        return True
    return "://" in value and bool(secrets_in(value))


def _is_secret(name: str) -> bool:
    """Return whether a query parameter or an environment variable of this name holds a secret."""
    return _SECRET_NAME.fullmatch(unquote_plus(name)) is not None


def _split_uri(uri: str) -> tuple[str, str, str]:
    """Split a URI into the URI without password and query, the password, and the query.

    The password is as it is written in the URI.
    """
    scheme, separator, rest = uri.partition("://")
    if (match := _UNENCODED_PASSWORD.match(rest)) is not None:
        name, password, rest = match.groups()
        rest, _, query = rest.partition("?")
        return f"{scheme}{separator}{name}@{rest}", password, query
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    name, _, password = user.partition(":")
    return f"{scheme}{separator}{name}{at}{host}{slash}{path}", password, query
