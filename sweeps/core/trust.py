"""Whose pickles may be read: a file that runs code when it is loaded carries a MAC made with a key of this user.

The key lies in the user's configuration folder, `$XDG_CONFIG_HOME/sweeps/key` (`~/.config/sweeps/key` by default), readable by this user
alone; the first pickle makes it. `SWEEPS_KEY_FILE` names another, for a team or for a cluster whose nodes have different homes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from sweeps.core.errors import InputError, Problem

KEY_FILE = "SWEEPS_KEY_FILE"
KEY_BYTES = 32
SHORTEST = 16  # bytes of a key that a user brings
SUFFIX = ".mac"


class Unreadable(InputError):
    """A file in the sweep's folder is damaged, or is not read because it is not trusted."""


class NotTrusted(Unreadable):
    """A file would run code, and nothing says that this user has written it."""


def key_file() -> Path:
    """Return where the key lies: what `SWEEPS_KEY_FILE` says, else the user's configuration folder."""
    if named := os.environ.get(KEY_FILE):
        return Path(named).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "sweeps" / "key"


def key(make: bool = False) -> bytes | None:
    """Return this user's key.

    Args:
        make: whether to make one if there is none. A key that `SWEEPS_KEY_FILE` names is never made.

    Returns:
        The key; None if there is none.

    Raises:
        InputError: the file cannot be read or written, or what it holds is too short.
    """
    file = key_file()
    place = KEY_FILE if os.environ.get(KEY_FILE) else str(file)
    try:
        found = file.read_bytes().strip()
    except FileNotFoundError:
        if os.environ.get(KEY_FILE):
            text = f"{file}: no such file; make one with: head -c 32 /dev/urandom | base64 > {file} && chmod 600 {file}"
            raise InputError(Problem(KEY_FILE, text)) from None
        return _made(file) if make else None
    except OSError as e:
        raise InputError(Problem(place, f"{file} cannot be read: {e.strerror}")) from None
    if len(found) < SHORTEST:
        raise InputError(Problem(place, f"{file} holds {len(found)} bytes, fewer than {SHORTEST}"))
    return found


def _made(file: Path) -> bytes:
    """Make the key, readable by this user alone. Of two processes that do so at once one makes it, and both have the same."""
    made = secrets.token_hex(KEY_BYTES).encode()
    part = file.with_name(f".key-{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(made)
        try:
            os.link(part, file)
        except FileExistsError:
            return file.read_bytes().strip()
        finally:
            part.unlink()
    except OSError as e:
        text = f"{file} cannot be written: {e.strerror}; name a key with {KEY_FILE}=FILE"
        raise InputError(Problem(str(file), text)) from None
    return made


def mac(data: bytes, name: str, secret: bytes) -> str:
    """Return the MAC of a file: HMAC-SHA256 (RFC 2104) of its name and its bytes, in hexadecimal digits."""
    return hmac.new(secret, name.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def sign(file: Path) -> None:
    """Write the MAC of a file beside it, before or after the file itself is in its place.

    Raises:
        InputError: there is no key, and none can be made.
    """
    secret = key(make=True)
    assert secret is not None
    file.with_name(file.name + SUFFIX).write_text(mac(file.read_bytes(), file.name, secret))


def read(file: Path, trust: bool = False) -> bytes:
    """Read a file that runs code when it is loaded.

    Args:
        file: with its MAC beside it.
        trust: take it as it is.

    Raises:
        NotTrusted: it has no MAC, or one that was made with another key or for other bytes.
        FileNotFoundError: there is no such file.
    """
    data = file.read_bytes()
    if trust:
        return data
    try:
        given = file.with_name(file.name + SUFFIX).read_text()
    except (OSError, UnicodeDecodeError):
        given = ""
    secret = key()
    if secret is None or not hmac.compare_digest(given.encode(), mac(data, file.name, secret).encode()):
        why = "was not written with your key" if given else "has no signature"
        text = f"{why}, and reading it runs code; if you trust who made this folder, add --trust (a team shares a key with {KEY_FILE})"
        raise NotTrusted(Problem(str(file), text))
    return data
