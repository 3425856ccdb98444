"""Open the storage of a sweep's study: the journal in the sweep's folder, or a PostgreSQL database.

If the study is in a database, the sweep's folder stores the database's URL without its secrets,
such as the password.
"""

import importlib.util
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sweeps.core.errors import DamagedStudy, InputError, Problem
from sweeps.core.files.disk import disk_error
from sweeps.core.files.json_files import read_json_object
from sweeps.core.files.origin import refuse_other_format
from sweeps.core.files.regular_files import refuse_other_kind
from sweeps.core.files.result_file import find_contradiction, read_result
from sweeps.core.files.sweep_folder import RESULT, SweepFolder
from sweeps.core.installed_package import install_command
from sweeps.core.json_values import is_text
from sweeps.core.text.command_hints import repair_command
from sweeps.core.text.secrets import masked, remember_uri, secrets_in, without_password
from sweeps.core.trial import format_trial_id

from .event_records import has_ended, is_given

# SQLAlchemy driver for both schemes below. The driver is explicit, because SQLAlchemy's default for
# `postgresql` differs between versions.
DRIVER = "postgresql+psycopg2"
# Settings of libpq that detect a dead connection: seconds, a count, and milliseconds for
# `tcp_user_timeout`. A setting in the URL has priority.
CONNECTION_SETTINGS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# Ways to prove who connects that do not reveal the password to the server. The URL in a sweep's
# folder may come from a stranger, and libpq sends $PGPASSWORD to every server that asks for it.
SAFE_AUTHENTICATION = "scram-sha-256,gss,none"
LIBPQ_WITH_REQUIRE_AUTH = 160000  # libpq 16, the first version that has `require_auth`
SCHEMES = ("postgresql", DRIVER)
# Full URLs given to this process, by the URL without secrets, which the sweep's folder does not
# store. Other processes get the secrets from libpq's environment variables, such as PGPASSWORD, or
# from ~/.pgpass.
_full_urls: dict[str, str] = {}


def check(url: str) -> None:
    """Check that a URL names a PostgreSQL database, and that its driver is installed.

    The driver is Python's driver for PostgreSQL. The function does not connect.

    Args:
        url: Value of the option `--storage`.

    Raises:
        InputError: The URL does not have the form `postgresql://USER@HOST/DATABASE`, or the driver
            is not installed.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InputError(
            "--storage", f"must be postgresql://USER@HOST/DATABASE, got {without_password(url)!r}"
        )
    if importlib.util.find_spec("psycopg2") is None:
        raise InputError(
            "--storage",
            f"PostgreSQL needs a driver that is not installed: {install_command('postgresql')}",
        )


def new_settings(url: str, sweep: str) -> dict[str, str]:
    """Return the storage settings to write into the folder of a new sweep.

    The secrets stay in the memory of this process; see `remember`.

    Args:
        url: Value of the option `--storage`.
        sweep: Name of the sweep.

    Returns:
        A mapping with the keys `storage` (the URL without secrets) and `study` (a unique name for
        the study).

    Raises:
        InputError: The URL does not have the form `postgresql://USER@HOST/DATABASE`, or the driver
            is not installed.
    """
    check(url)
    return {"storage": remember_secrets(url), "study": f"{sweep}-{uuid.uuid4().hex[:8]}"}


def remember_secrets(url: str) -> str:
    """Store a URL with its secrets in the memory of this process.

    Args:
        url: The URL with its secrets.

    Returns:
        The URL without the secrets.
    """
    bare = without_password(url)
    _full_urls[bare] = url
    remember_uri(url)
    return bare


def place_of(folder: Path) -> tuple[str, str] | None:
    """Return the URL of the database that holds a sweep's study, and the name of the study.

    Args:
        folder: The sweep's folder.

    Returns:
        (URL, study name). The URL includes the secrets if this process knows them. None if the
        study is a journal file in the folder.

    Raises:
        InputError: The folder has another format than this version reads, or `storage` or `study`
            in its `origin.json` is not text.
    """
    refuse_other_format(folder)
    origin = read_json_object(SweepFolder(folder).origin)
    if origin is None or not (bare := origin.get("storage")):
        return None
    if not is_text(bare) or not is_text(origin.get("study")):
        raise InputError(
            str(SweepFolder(folder).origin),
            "`storage` and `study`, which name the database of the study, must be texts",
        )
    return _full_urls.get(bare, bare), origin["study"]


def open_for_writing(folder: Path) -> tuple[Any, str | None, Callable[[], None]]:
    """Open the storage of a sweep's study for writing.

    Only the driver of the sweep may call this function.

    Args:
        folder: The sweep's folder.

    Returns:
        (storage, study name, sync). `storage` is an Optuna storage. The study name is None if a
        journal contains no study yet. `sync` is a function that flushes the journal to the disk.
        Records written since the last call of `sync` survive the death of the process, but not a
        crash of the machine. For a database, `sync` does nothing.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The database cannot be reached, or the journal is not a regular file.
    """
    from .journal import Journal

    if (place := place_of(folder)) is not None:
        url, name = place
        database = connect(url)
        studies = [study for study in database.get_all_studies() if study.study_name == name]
        check_trial_count(folder, lambda: _trials(database, studies))
        return database, name, lambda: None  # a database flushes by itself
    path = journal_in(folder)
    if not path.exists():
        check_trial_count(folder)
    journal = Journal(path)
    opened = journal.storage()
    # The study's name is read from the journal: a space without `name` is named by its path, and
    # the path changes if the folder is copied.
    studies = opened.get_all_studies()
    check_trial_count(folder, lambda: _trials(opened, studies[:1]))
    return opened, studies[0].study_name if studies else None, journal.sync


def _trials(opened: Any, studies: Iterable[Any]) -> list[Any]:
    """Return Optuna's trials of some studies in a storage."""
    return [t for study in studies for t in opened.get_all_trials(study._study_id, deepcopy=False)]


def journal_in(folder: Path) -> Path:
    """Return the path of the journal in a sweep's folder. The journal may not exist.

    Args:
        folder: The sweep's folder.

    Raises:
        UnreadableFile: The path holds anything but a regular file.
    """
    journal = SweepFolder(folder).journal
    refuse_other_kind(journal)
    return journal


def check_trial_count(folder: Path, trials: Callable[[], Iterable[Any]] = list) -> None:
    """Check that a study has all ended trials that the sweep's result counts or names.

    The result is `result.json`. Nothing is done without a result.

    Args:
        folder: The sweep's folder.
        trials: Function that returns the study's trials as Optuna's frozen trials. It is called
            only if there is a result.

    Raises:
        DamagedStudy: The study lacks trials that the result includes.
    """
    result = read_result(folder)
    if result is None:
        return
    ended: set[str] = set()
    given: set[str] = set()  # initial points with known results
    for t in trials():
        if has_ended(t):
            (given if is_given(t) else ended).add(format_trial_id(t.number))
    problem = find_contradiction(ended, given, result)
    if problem is None:
        return
    place = place_of(folder)
    if place is None:
        text = (
            f"{problem}; `{repair_command(folder)}` renames {RESULT}, so that a resume "
            "runs the missing trials again"
        )
        raise DamagedStudy(Problem(str(SweepFolder(folder).journal), text))
    url, name = place
    restore = (
        f"restore the study `{name}` from a backup, or rename {RESULT} and resume the sweep, "
        "to run the missing trials again"
    )
    raise DamagedStudy(Problem(without_password(url), f"{problem}; {restore}"))


def connect(url: str) -> Any:
    """Connect to a database and return an Optuna storage. Missing tables are created.

    If the user has not given the URL to this process, the server must not learn the password.

    Args:
        url: URL of the database.

    Raises:
        InputError: The database cannot be reached. The message does not contain the password.
    """
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    settings = parse_qs(urlsplit(url).query)
    arguments: dict[str, Any] = {k: v for k, v in CONNECTION_SETTINGS.items() if k not in settings}
    if url not in _full_urls.values():
        arguments |= _safe_authentication()
    engine = {"pool_pre_ping": True, "pool_size": 2, "connect_args": arguments}
    try:
        return optuna.storages.get_storage(
            optuna.storages.RDBStorage(
                f"{DRIVER}://{url.partition('://')[2]}", engine_kwargs=engine
            )
        )
    except (SQLAlchemyError, ImportError, ValueError, RuntimeError) as e:
        text = masked(_first_line(e))
        for secret in secrets_in(url):
            text = text.replace(secret.written, "***").replace(secret.value, "***")
        hint = ""
        if "authentication method requirement" in text:
            hint = (
                "; set PGREQUIREAUTH if this server may learn your password, or let it use "
                f"{SAFE_AUTHENTICATION}"
            )
        elif "password" in text:
            hint = (
                "; if the URL has no password, the password is taken from $PGPASSWORD or ~/.pgpass"
            )
        raise InputError("--storage", f"{without_password(url)}: {text}{hint}") from None


def _safe_authentication() -> dict[str, str]:
    """Return the argument of libpq that refuses servers which would learn the password.

    The environment variable PGREQUIREAUTH, which libpq reads itself, has priority.
    """
    from psycopg2.extensions import libpq_version

    if "PGREQUIREAUTH" in os.environ or libpq_version() < LIBPQ_WITH_REQUIRE_AUTH:
        return {}
    return {"require_auth": SAFE_AUTHENTICATION}


def outage(error: BaseException) -> str | None:
    """Return the reason why the study cannot be written, as one line of text.

    There is a reason if the disk or the database caused the exception.

    Args:
        error: An exception. The exceptions that caused it are examined too.

    Returns:
        The reason. None if the exception has another cause.
    """
    from sqlalchemy.exc import SQLAlchemyError

    if (problem := disk_error(error)) is not None:
        return f"the sweep's folder cannot be written: {problem}"
    cause: BaseException | None = error
    causes: list[BaseException] = []
    while cause is not None and cause not in causes:  # the chain of causes may contain a cycle
        causes.append(cause)
        if isinstance(cause, SQLAlchemyError):
            return f"the study's database does not answer: {_first_line(cause)}"
        # `cause` is the exception that a Ray task raised.
        cause = getattr(cause, "cause", None) or cause.__cause__ or cause.__context__
    return None


def _first_line(error: BaseException) -> str:
    """Return the first line of a database error, without SQLAlchemy's own text."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
