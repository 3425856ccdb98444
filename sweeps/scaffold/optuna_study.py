"""Open an Optuna study for reading only, and choose its best trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from sweeps.core.errors import InputError
from sweeps.core.text.secrets import masked
from sweeps.core.text.suggestions import did_you_mean
from sweeps.core.text.texts import first_names
from sweeps.space.model.conditions import Key
from sweeps.study.storage import DRIVER

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage


# Options of SQLAlchemy's engine with which a database refuses to write. SQLite needs `mode=ro`.
READ_ONLY: Mapping[str, Mapping[str, Any]] = {
    "postgresql": {"execution_options": {"postgresql_readonly": True}},
    "mysql": {"connect_args": {"init_command": "SET SESSION TRANSACTION READ ONLY"}},
}
# Number of trials of a study that are run first.
BEST = 3


def open_study(storage: str, name: str | None) -> Study:
    """Open a study in an SQLite file, in a file of Optuna's journal, or at the URL of a database.

    Nothing is written.

    Args:
        storage: The path or URL.
        name: Name of the study. None if the storage has only one study.

    Raises:
        InputError: The storage has no such file, or no such study.
        Exception: The storage cannot be read. The errors of the libraries have no common class.
    """
    import optuna

    masked_storage = masked(storage)  # a URL may contain a password
    opened_storage = _storage(storage)
    names = optuna.study.get_all_study_names(opened_storage)
    if not names:
        raise InputError("--from-optuna", f"{masked_storage} has no study")
    if name is None and len(names) > 1:
        text = f"{masked_storage} has {len(names)} studies; name one of them: {first_names(names)}"
        raise InputError("--study", text)
    if name is not None and name not in names:
        text = f"{masked_storage} has no study `{name}`; {did_you_mean(name, names)}"
        raise InputError("--study", text)
    return optuna.load_study(study_name=name or names[0], storage=opened_storage)


def _storage(storage: str) -> BaseStorage:
    """Return Optuna's storage for a path or a URL. Missing files and tables are not created."""
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.engine import make_url

    path = Path(storage)
    if "://" in storage:
        url = make_url(storage)
        kind = url.get_backend_name()
        if kind in READ_ONLY:
            if url.drivername == "postgresql":
                url = url.set(drivername=DRIVER)
            return optuna.storages.RDBStorage(
                url.render_as_string(hide_password=False),
                engine_kwargs=dict(READ_ONLY[kind]),
                skip_table_creation=True,
            )
        if kind != "sqlite":
            known = ", ".join(["sqlite", *READ_ONLY])
            raise InputError("--from-optuna", f"{kind} is no database of Optuna; known are {known}")
        # The URL names the file as a path, or as `file:study.db?mode=ro`.
        path = Path(unquote(urlsplit(url.database or "").path))
    if not path.is_file():
        raise InputError("--from-optuna", f"{path}: there is no such file")
    with path.open("rb") as opened:
        is_sqlite = opened.read(16).startswith(b"SQLite format 3")
    if not is_sqlite:
        return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    url_of_file = f"sqlite:///file:{quote(str(path.absolute()))}?mode=ro&uri=true"
    return optuna.storages.RDBStorage(url_of_file, skip_table_creation=True)


def best_points(
    study: Study, distributions: Mapping[str, BaseDistribution]
) -> list[dict[str, Key]]:
    """Return the different configurations of the best trials, at most `BEST`, the best first.

    The best trials of several objectives are those on the Pareto front. Infeasible trials, and
    values outside the ranges, are left out.

    Args:
        study: The study.
        distributions: Distribution of each parameter in the space file.
    """
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    if len(study.directions) > 1:
        best = study.best_trials
    else:
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        # In Optuna, a constraint is satisfied if its value is at most 0.
        feasible = [t for t in complete if all(value <= 0 for value in t.constraints.values())]
        maximize = study.direction == StudyDirection.MAXIMIZE
        best = sorted(feasible, key=lambda trial: trial.value or 0.0, reverse=maximize)
    points: list[dict[str, Key]] = []
    for trial in best:
        is_inside = all(
            name in distributions and _contains(distributions[name], value)
            for name, value in trial.params.items()
        )
        if trial.params and is_inside and trial.params not in points:
            points.append(dict(trial.params))
        if len(points) == BEST:
            break
    return points


def _contains(distribution: BaseDistribution, value: Key) -> bool:
    """Return whether a distribution has a value."""
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:  # a choice without this option
        return False
