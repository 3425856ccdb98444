"""Sign files such as pickles that run code when they are loaded, and check the signatures.

A signature is a message authentication code (MAC) that is made with the user's key.

The key is in the file `$XDG_CONFIG_HOME/sweeps/key`, by default `~/.config/sweeps/key`. It is made
when the first file is signed, and only this user can read it. The environment variable
`SWEEPS_KEY_FILE` names another key file, for a team or for machines with different home folders.
"""

import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path

from sweeps.core.errors import InputError, Problem, UnreadableFile

from .atomic_files import write_text
from .regular_files import read_bytes

# The environment variable with the path of another key file
KEY_FILE = "SWEEPS_KEY_FILE"
KEY_BYTES = 32
MIN_KEY_BYTES = 16
# Suffix of the file with a signature
SUFFIX = ".mac"


class UntrustedFile(UnreadableFile):
    """A file would run code when it is loaded, and has no MAC made with this user's key."""


def key_file() -> Path:
    """Return the path of the key file."""
    if named := os.environ.get(KEY_FILE):
        return Path(named).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "sweeps" / "key"


def key(make: bool = False) -> bytes | None:
    """Return this user's key.

    Args:
        make: True to make a key if there is none. If `SWEEPS_KEY_FILE` is set, no key is made.

    Returns:
        The key. None if there is no key and `make` is False.

    Raises:
        InputError: The key file cannot be read or written, the key has fewer than 16 bytes, or the
            file that `SWEEPS_KEY_FILE` names does not exist.
    """
    file = key_file()
    place = KEY_FILE if os.environ.get(KEY_FILE) else str(file)
    try:
        content = file.read_bytes().strip()
    except FileNotFoundError:
        if os.environ.get(KEY_FILE):
            text = (
                f"the key file {file} does not exist; create it with: head -c 32 /dev/urandom | "
                f"base64 > {file} && chmod 600 {file}"
            )
            raise InputError(KEY_FILE, text) from None
        return _make_key(file) if make else None
    except OSError as e:
        raise InputError(place, f"{file} cannot be read: {e.strerror}") from None
    if len(content) < MIN_KEY_BYTES:
        raise InputError(
            place, f"{file} has {len(content)} bytes, but a key needs at least {MIN_KEY_BYTES}"
        )
    return content


def _make_key(file: Path) -> bytes:
    """Make a key that only this user can read.

    If two processes or threads make a key at the same time, both return the same key.
    """
    new_key = secrets.token_hex(KEY_BYTES).encode()
    part = file.with_name(f".key-{os.getpid()}-{threading.get_ident()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(new_key)
        try:
            os.link(part, file)
        except FileExistsError:
            return file.read_bytes().strip()
        finally:
            part.unlink()
    except OSError as e:
        text = f"{file} cannot be written: {e.strerror}; name a key with {KEY_FILE}=FILE"
        raise InputError(str(file), text) from None
    return new_key


def mac(data: bytes, name: str, secret: bytes) -> str:
    """Return the MAC of a file, in hexadecimal digits.

    It is the HMAC-SHA256 (RFC 2104) of the file's name and its bytes.

    Args:
        data: The bytes of the file.
        name: Name of the file without its folder.
        secret: The user's key.
    """
    return hmac.new(secret, name.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def sign(file: Path) -> None:
    """Write the MAC of a file to `NAME.mac` beside the file.

    Raises:
        InputError: The user's key cannot be read or made; see `key`.
    """
    secret = key(make=True)
    assert secret is not None
    write_text(file.with_name(file.name + SUFFIX), mac(read_bytes(file), file.name, secret))


def read(file: Path, trust: bool = False) -> bytes:
    """Read a file that runs code when it is loaded.

    The file's MAC is checked first, unless `trust` is True.

    Args:
        file: The file. `sign` has written its MAC to `NAME.mac` beside it.
        trust: True to read the file without checking its MAC.

    Raises:
        UntrustedFile: The file has no MAC, or its MAC does not match the file and this user's key.
        UnreadableFile: The file is not a regular file.
        FileNotFoundError: The file does not exist.
    """
    data = read_bytes(file)
    if trust:
        return data
    try:
        signature = read_bytes(file.with_name(file.name + SUFFIX))
    except (FileNotFoundError, UnreadableFile):
        signature = b""
    secret = key()
    if secret is None or not hmac.compare_digest(signature, mac(data, file.name, secret).encode()):
        reason = "was not written with your key" if signature else "has no signature"
        text = (
            f"{reason}, and reading this file can run code; if you trust the person who made this "
            "folder, add "
            f"--trust (a team can share one key through {KEY_FILE})"
        )
        raise UntrustedFile(Problem(str(file), text))
    return data


def refuse_unsigned(folder: Path, names: Iterable[str], trust: bool) -> None:
    """Raise an error if files in a folder are not signed with this user's key.

    Pickles in a checkpoint are such files.

    Args:
        folder: The folder.
        names: Names of the files. A file that does not exist is ignored.
        trust: True to accept files without a valid signature.

    Raises:
        UntrustedFile: See `read`.
    """
    for name in names:
        if not trust and (folder / name).exists():
            read(folder / name)  # checks the signature
