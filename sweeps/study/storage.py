"""Open the study of a sweep: the journal in its folder, or a PostgreSQL database, which the folder names without the password."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sweeps.core.command_hints import repair_command
from sweeps.core.disk import disk_error
from sweeps.core.errors import DamagedStudy, InputError, Problem
from sweeps.core.installed_package import install
from sweeps.core.json_files import is_text, read_json_object
from sweeps.core.result import contradiction, read_result
from sweeps.core.secrets import masked, secrets_in, without_password
from sweeps.core.sweep_folder import RESULT, SweepFolder

# By either the tested driver is meant; what SQLAlchemy takes for the first has changed.
DRIVER = "postgresql+psycopg2"
# A network that goes silent is found out: libpq's own settings, where the URL has no others.
PATIENCE = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
SCHEMES = ("postgresql", DRIVER)
# libpq's variables of what the folder does not keep of a URL.
VARIABLES = {"password": "PGPASSWORD", "options": "PGOPTIONS"}
# The URLs this process was given, by the URL without its secrets. Elsewhere libpq finds them: `VARIABLES`, ~/.pgpass.
_whole: dict[str, str] = {}


def check(url: str) -> None:
    """Check that a URL is one of PostgreSQL, and that the driver is installed.

    Raises:
        InputError: It is not.
    """
    scheme, there, _ = url.partition("://")
    if not there or scheme not in SCHEMES:
        raise InputError(Problem("--storage", f"must be postgresql://USER@HOST/DATABASE, got {without_password(url)!r}"))
    if importlib.util.find_spec("psycopg2") is None:
        raise InputError(Problem("--storage", f"PostgreSQL needs a driver that is not installed: {install('postgresql')}"))


def named(url: str, sweep: str) -> dict[str, str]:
    """Return what the folder of a new sweep keeps of `--storage`: the URL without secrets, and a unique name for the study."""
    check(url)
    return {"storage": remember(url), "study": f"{sweep}-{uuid.uuid4().hex[:8]}"}


def remember(url: str) -> str:
    """Keep the secrets of a URL for this process, and return the URL without them."""
    bare = without_password(url)
    _whole[bare] = url
    return bare


def place_of(folder: Path) -> tuple[str, str] | None:
    """The database's URL, as far as it is known, and the study's name; None for a sweep whose study is the journal in its folder."""
    origin = read_json_object(SweepFolder(folder).origin)
    if origin is None or not (bare := origin.get("storage")):
        return None
    if not is_text(bare) or not is_text(origin.get("study")):
        raise InputError(
            Problem(str(SweepFolder(folder).origin), "`storage` and `study` must be texts; they name the database of the study")
        )
    return _whole.get(without_password(bare), bare), origin["study"]  # an older version kept more of the query


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables with which another process of ours reaches the study: the secrets, as libpq names them."""
    place = place_of(folder)
    if place is None:
        return {}
    return {VARIABLES[secret.name]: secret.value for secret in secrets_in(place[0]) if secret.name in VARIABLES}


def opened(folder: Path) -> tuple[Any, str | None, Callable[[], None]]:
    """Optuna's storage of a sweep's study, to be written to by the one driver that there is.

    Returns:
        The storage, the study's name (None if there is none in it yet), and what forces all that was written to the disk: until then it
        outlives every process, but not a machine that stops.

    Raises:
        InputError: the database cannot be reached.
    """

    from sweeps.study.journal import Journal

    if (place := place_of(folder)) is not None:
        kept = connect(place[0])
        refuse_less(folder, lambda: [t for s in kept.get_all_studies() if s.study_name == place[1] for t in _trials(kept, s)])
        return kept, place[1], lambda: None  # a database sees to that itself
    if not journal_in(folder).exists():
        refuse_less(folder)
    if SweepFolder(folder).journal.is_symlink():
        raise InputError(
            Problem(str(SweepFolder(folder).journal), "is a link, and a study is written in the sweep's folder alone; put the file there")
        )
    journal = Journal(SweepFolder(folder).journal)
    kept = journal.storage()
    there = kept.get_all_studies()  # a file without `name` is named by its path, which the copy in the folder has not
    refuse_less(folder, lambda: _trials(kept, there[0]) if there else [])
    return kept, there[0].study_name if there else None, journal.sync


def _trials(kept: Any, study: Any) -> list[Any]:
    return list(kept.get_all_trials(study._study_id, deepcopy=False))


def journal_in(folder: Path) -> Path:
    """The journal of a sweep's folder, which may not be there.

    Raises:
        DamagedStudy: something else has its name.
    """
    journal = SweepFolder(folder).journal
    if journal.exists() and not journal.is_file():
        raise DamagedStudy(Problem(str(journal), "is no file, and the study should be there; put it back from a backup"))
    return journal


def refuse_less(folder: Path, trials: Callable[[], Iterable[Any]] = list) -> None:
    """See that a study holds all trials that ended by what the sweep's result says.

    Args:
        folder: the sweep's.
        trials: gives those of the study, as Optuna has them; called only if there is a result.

    Raises:
        DamagedStudy: it holds fewer.
    """
    result = read_result(folder)
    if result is None:
        return
    told = [t.user_attrs["begun"] for t in trials() if t.state.is_finished() and "begun" in t.user_attrs]
    ended, given = ({begun["id"] for begun in told if bool(begun.get("given")) is known} for known in (False, True))
    if (why := contradiction(ended, given, result)) is None:
        return
    if (place := place_of(folder)) is None:
        raise DamagedStudy(Problem(str(SweepFolder(folder).journal), f"{why}; `{repair_command(folder)}` rebuilds what it can from both"))
    restore = f"restore the study `{place[1]}` from a backup, or move {RESULT} away to run again what is missing"
    raise DamagedStudy(Problem(without_password(place[0]), f"{why}; {restore}"))


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
        text = masked(said[0])
        for secret in secrets_in(url):
            text = text.replace(secret.written, "***").replace(secret.value, "***")
        hint = "; without one in the URL, the password is looked for in $PGPASSWORD and ~/.pgpass" if "password" in text else ""
        raise InputError(Problem("--storage", f"{without_password(url)}: {text}{hint}")) from None


def outage(error: BaseException) -> str | None:
    """What keeps a study from being written, in a line: the disk or the database; None for an error of another kind."""
    from sqlalchemy.exc import SQLAlchemyError

    if (why := disk_error(error)) is not None:
        return f"the sweep's folder cannot be written: {why}"
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:  # errors may name each other
        seen.append(cause)
        if isinstance(cause, SQLAlchemyError):
            said = str(getattr(cause, "orig", None) or cause).strip().splitlines() or [type(cause).__name__]
            return f"the study's database does not answer: {said[0]}"
        cause = getattr(cause, "cause", None) or cause.__cause__ or cause.__context__  # `cause` is what a task of Ray raised
    return None
