"""Find out whether a Ray cluster requires a token, and set `RAY_AUTH_MODE` accordingly."""

import os
import subprocess
import sys
from pathlib import Path

from sweeps.core.errors import InputError

AUTH_MODE = "RAY_AUTH_MODE"
ANSWER_WITHIN = 60.0  # seconds
# Script that checks whether a cluster accepts this process. The exit code is `ACCEPTED`,
# `NEEDS_TOKEN`, or another code after an error.
CHECK_SCRIPT = """
import sys
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=canonicalize_bootstrap_address_or_die(sys.argv[1])).internal_kv_keys(\
b"session_name", namespace=None)
except AuthenticationError:
    sys.exit(77)
"""
ACCEPTED = 0
NEEDS_TOKEN = 77
# Value of `RAY_AUTH_MODE` from `prepare_authentication`; None if the variable was not changed.
_mode: str | None = None


def prepare_authentication(address: str) -> None:
    """Set `RAY_AUTH_MODE` to the mode that a cluster needs.

    The mode is "token" if the cluster requires a token, and "disabled" otherwise. Ray reads this
    variable when Ray is imported, and a process with a token cannot use a cluster that requires
    none. So each mode is tried in a separate process. If the user has set `RAY_AUTH_MODE`, the
    variable is not changed.

    Args:
        address: Address of the cluster.

    Raises:
        InputError: The cluster requires a token, and the user has no token or a wrong token.
    """
    global _mode
    if os.environ.get(AUTH_MODE) not in (None, "", _mode):
        return
    for mode in ("disabled", "token"):
        if (answer := _try_mode(address, mode)) == ACCEPTED:
            _mode = os.environ[AUTH_MODE] = mode
            _reload_mode()
            return
        if mode == "disabled" and answer != NEEDS_TOKEN:
            return  # `ray_cluster.join` reports the problem later.
    file = os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    why = f"there is no token in {file}"
    if os.environ.get("RAY_AUTH_TOKEN"):
        why = "the token in RAY_AUTH_TOKEN is a different token"
    elif Path(file).expanduser().exists():
        why = f"the token in {file} is a different token"
    text = (
        f"{address}: the cluster requires a token, but {why}; copy the cluster's file "
        "~/.ray/auth_token to this machine, or set RAY_AUTH_TOKEN"
    )
    raise InputError("--address", text)


def forget_authentication() -> None:
    """Remove the variable `RAY_AUTH_MODE` if its value is from `prepare_authentication`."""
    global _mode
    if _mode is not None and os.environ.get(AUTH_MODE) == _mode:
        del os.environ[AUTH_MODE]
        _reload_mode()
    _mode = None


def _reload_mode() -> None:
    """Make Ray read `RAY_AUTH_MODE` again, if Ray is imported already.

    Ray by itself reads the variable only during the import.
    """
    if "ray" in sys.modules:
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")


def _try_mode(address: str, mode: str) -> int | None:
    """Run `CHECK_SCRIPT` with a value of `RAY_AUTH_MODE`.

    Return its exit code, or None if the cluster does not answer in time.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHECK_SCRIPT, address],
            env={**os.environ, AUTH_MODE: mode},
            capture_output=True,
            timeout=ANSWER_WITHIN,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode
