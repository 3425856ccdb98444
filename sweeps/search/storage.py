"""Where a sweep's study lies: the journal in its folder, or a PostgreSQL database, which the folder names without the password."""

from __future__ import annotations

import importlib.util
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sweeps.distribution import install
from sweeps.errors import InputError, Problem
from sweeps.folder import DISK, ORIGIN, without_password

# By either the tested driver is meant; what SQLAlchemy takes for the first has changed.
DRIVER = "postgresql+psycopg2"
# A network that goes silent is found out: libpq's own settings, where the URL has no others.
PATIENCE = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
SCHEMES = ("postgresql", DRIVER)
# In the folder of a sweep without a database.
JOURNAL = "study.journal"
# What this process was told of passwords, by the URL without them. Elsewhere libpq finds them: $PGPASSWORD, ~/.pgpass.
_whole: dict[str, str] = {}


def check(url: str) -> None:
    """See that it is a PostgreSQL URL, and that its driver is installed.

    Raises:
        InputError: it is not.
    """
    scheme, there, _ = url.partition("://")
    if not there or scheme not in SCHEMES:
        raise InputError(Problem("--storage", f"must be postgresql://USER@HOST/DATABASE, got {without_password(url)!r}"))
    if importlib.util.find_spec("psycopg2") is None:
        raise InputError(Problem("--storage", f"PostgreSQL needs a driver that is not installed: {install('postgresql')}"))


def named(url: str, sweep: str) -> dict[str, str]:
    """What the folder of a new sweep keeps of `--storage`: the URL without its password, and a study's name that no other sweep has."""
    check(url)
    return {"storage": remember(url), "study": f"{sweep}-{uuid.uuid4().hex[:8]}"}


def remember(url: str) -> str:
    """Keep a URL's password for this process; the URL without it."""
    bare = without_password(url)
    _whole[bare] = url
    return bare


def place_of(folder: Path) -> tuple[str, str] | None:
    """The database's URL, as far as it is known, and the study's name; None for a sweep whose study is the journal in its folder."""
    try:
        origin = json.loads((folder / ORIGIN).read_text())
    except (OSError, ValueError):
        return None
    bare = origin.get("storage")
    return (_whole.get(bare, bare), origin["study"]) if bare else None


def environment(folder: Path) -> dict[str, str]:
    """What another process of ours needs to reach the study: libpq's variable of the password, if this process was told it."""
    place = place_of(folder)
    if place is None:
        return {}
    secrets = _secrets(place[0])
    return {"PGPASSWORD": secrets[-1]} if secrets else {}


def opened(folder: Path) -> tuple[Any, str | None, Callable[[], None]]:
    """Optuna's storage of a sweep's study, to be written to by the one driver that there is.

    Returns:
        The storage, the study's name (None if there is none in it yet), and what forces all that was written to the disk: until then it
        outlives every process, but not a machine that stops.

    Raises:
        InputError: the database cannot be reached.
    """
    import optuna

    from sweeps.search.journal import Journal

    if (place := place_of(folder)) is not None:
        return connect(place[0]), place[1], lambda: None  # a database sees to that itself
    journal = Journal(folder / JOURNAL)
    kept = optuna.storages.JournalStorage(journal)
    there = kept.get_all_studies()  # a file without `name` is named by its path, which the copy in the folder has not
    return kept, there[0].study_name if there else None, journal.sync


def connect(url: str) -> Any:
    """Optuna's storage in a database; its tables are made if they are not there.

    Raises:
        InputError: the database cannot be reached; without the password in the text.
    """
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    asked = parse_qs(urlsplit(url).query)
    engine = {"pool_pre_ping": True, "pool_size": 2, "connect_args": {k: v for k, v in PATIENCE.items() if k not in asked}}
    try:
        return optuna.storages.get_storage(optuna.storages.RDBStorage(f"{DRIVER}://{url.partition('://')[2]}", engine_kwargs=engine))
    except (SQLAlchemyError, ImportError, ValueError, RuntimeError) as e:
        said = str(getattr(e, "orig", None) or e).strip().splitlines() or [type(e).__name__]
        text = said[0]
        for secret in _secrets(url):
            text = text.replace(secret, "***")
        hint = "; without one in the URL, the password is looked for in $PGPASSWORD and ~/.pgpass" if "password" in text else ""
        raise InputError(Problem("--storage", f"{without_password(url)}: {text}{hint}")) from None


def outage(error: BaseException) -> str | None:
    """What keeps a study from being written, in a line: the disk or the database; None for an error of another kind."""
    from sqlalchemy.exc import SQLAlchemyError

    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:  # errors may name each other
        seen.append(cause)
        if isinstance(cause, OSError) and cause.errno in DISK:
            return f"the sweep's folder cannot be written: {os.strerror(cause.errno)}"
        if isinstance(cause, SQLAlchemyError):
            said = str(getattr(cause, "orig", None) or cause).strip().splitlines() or [type(cause).__name__]
            return f"the study's database does not answer: {said[0]}"
        cause = getattr(cause, "cause", None) or cause.__cause__ or cause.__context__  # `cause` is what a task of Ray raised
    return None


def _secrets(url: str) -> list[str]:
    """The password of a URL, as it is written there and as it is."""
    parts = urlsplit(url)
    found = [parts.password, parts.password and unquote(parts.password), *parse_qs(parts.query).get("password", [])]
    return [secret for secret in found if secret]
