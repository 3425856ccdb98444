"""Find a sweep, a bundle or a trial by the name that the user gave."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from sweeps.core.errors import InputError, Problem, unknown_trial
from sweeps.core.files.origin import refuse_other_format, valid_origin_keys
from sweeps.core.files.sweep_folder import ORIGIN, STAMP, is_sweep
from sweeps.core.text.suggestions import did_you_mean
from sweeps.core.trial import complete_trial_id
from sweeps.space.python import saved_space
from sweeps.study.record_reader import Record
from sweeps.study.states import TrialState


def find(sweep: str | Path, root: Path) -> Path:
    """Return the folder of a sweep.

    Args:
        sweep: The sweep's folder; the name of this folder in the root, such as
            `churn-20260102-120000`; the beginning of this name; or `latest`. A name without date
            and time, such as `churn`, selects the newest sweep of that name. `ROOT/NAME` selects a
            sweep in another root folder.
        root: Root folder of all sweeps.

    Raises:
        InputError: No sweep matches, several sweeps match, or the folder has another format than
            this version reads.
    """
    path = Path(sweep)
    name = str(sweep).rstrip("/")
    _refuse_long_path(name)
    if is_sweep(path):
        folder = path.resolve()
    elif len(path.parts) > 1 and not path.is_dir() and path.parent.is_dir():  # ROOT/NAME
        folder = _find_name(path.name, path.parent, str(sweep))
    else:
        folder = _find_name(name, root, str(sweep))
    refuse_other_format(folder)
    return folder


def _find_name(name: str, root: Path, text: str) -> Path:
    """Return the folder of a sweep in a root folder; see `find`.

    `text` is the user's text for messages.
    """

    def began(name: str) -> float:
        return valid_origin_keys(root / name).get("began") or 0

    names = sorted(file.parent.name for file in root.glob(f"*/{ORIGIN}"))
    match = choose_name(name, names, began, root=root, text=text)
    if match is not None:
        return (root / match).resolve()
    if Path(text).is_dir():
        raise InputError(text, "is not a sweep's folder, because it has no origin.json")
    hint = did_you_mean(name, names[-5:]) if names else f"{root} has no sweeps"
    raise InputError(text, f"is neither a sweep's folder nor the name of a sweep in {root}; {hint}")


def choose_name(
    name: str,
    names: Sequence[str],
    began: Callable[[str], float | str],
    *,
    root: str | Path,
    text: str,
) -> str | None:
    """Return the name of the sweep that the user means; None if no name matches.

    Args:
        name: The name, the name without date and time, its beginning, or `latest`.
        names: The names of all sweeps in the root.
        began: Function that orders names by the start of the sweep.
        root: The root, for messages.
        text: The user's text, for messages.

    Raises:
        InputError: Several names match.
    """
    stamped = re.compile(re.escape(name) + STAMP)
    if name == "latest":
        candidates = [*names]
    elif name in names:
        candidates = [name]
    else:
        candidates = [n for n in names if stamped.fullmatch(n)]
    if candidates:
        return max(candidates, key=began)
    matching = [n for n in names if n.startswith(name)]
    if len(matching) > 1:
        raise InputError(
            text,
            f"several sweeps in {root} match: {', '.join(matching[:5])}; give more of the name",
        )
    return matching[0] if matching else None


def bundle_of(bundle: str | Path, root: Path) -> Path:
    """Return the folder of a bundle.

    This function does not check that the folder holds a valid bundle.

    Args:
        bundle: The bundle's folder, or a sweep in any form that `find` accepts. A sweep selects the
            bundle of its best trial.
        root: Root folder of all sweeps.

    Raises:
        InputError: There is no such sweep, or the sweep has no bundle.
    """
    path = Path(bundle)
    _refuse_long_path(str(bundle))
    if is_sweep(path):
        return saved_space.bundle_of(path)
    if path.exists() or len(path.parts) > 1:  # An invalid bundle is reported when it is loaded.
        return path
    try:
        folder = find(bundle, root)
    except InputError as e:
        raise InputError(
            Problem(p.place, p.text.replace("neither a", "neither a bundle, a", 1))
            for p in e.problems
        ) from None
    return saved_space.bundle_of(folder)


def trial_of(study: Record | None, trial_id: str) -> TrialState:
    """Return the trial that the user named.

    Args:
        study: The study; None if the sweep has not created one yet.
        trial_id: The trial's id, with or without leading zeros, or `best`.

    Raises:
        InputError: There is no such trial.
    """
    trials = {t.id: t for t in study.trials} if study is not None else {}
    if trial_id == "best" and study is not None and study.best is not None:
        return study.best
    name = complete_trial_id(trial_id)
    if name not in trials:
        raise unknown_trial("trial", trial_id, trials)
    return trials[name]


def _refuse_long_path(name: str) -> None:
    """Raise InputError if a path is too long for every file system."""
    longest_part = max(len(os.fsencode(part)) for part in name.split("/"))
    if len(os.fsencode(name)) > 4095 or longest_part > 255:
        raise InputError(
            f"{name[:40]}...",
            f"the path has {len(name):,} characters, but a path may have at most 4,095 bytes, and "
            "each name in it at most 255",
        )
