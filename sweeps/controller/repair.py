"""Rebuild the damaged study of a sweep from its readable parts. The damaged files are kept under other names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.core import provenance
from sweeps.core.atomic_files import write_bytes
from sweeps.core.checkpoint_files import GONE, step_of
from sweeps.core.errors import InputError, Problem
from sweeps.core.folder_lock import FolderLock
from sweeps.core.json_files import read_json_object
from sweeps.core.origin import read_origin
from sweeps.core.result import best_trials, read_result, result_file_error, to_json_value
from sweeps.core.secrets import without_password
from sweeps.core.sweep_folder import JOURNAL, MANIFEST, RESULT, SweepFolder
from sweeps.core.trial import CHECKPOINT_NOTE, Checkpoint
from sweeps.search.journal_rebuild import Salvaged
from sweeps.space.saved_space import saved_space
from sweeps.study.storage import place_of

# Suffix for the name of a damaged file. A number follows.
DAMAGED = ".damaged-"


@dataclass(frozen=True)
class Repaired:
    """Result of a repair.

    Attributes:
        folder: The sweep's folder.
        lines: (number of kept lines, number of lines before the repair) of the journal.
        salvaged: The rebuilt journal and what happened to each trial; None if the journal needed no repair.
        kept: New paths of the damaged files and folders.
        why: Problems that were found, one line each; () if nothing was damaged.
    """

    folder: Path
    lines: tuple[int, int] = (0, 0)
    salvaged: Salvaged | None = None
    kept: tuple[Path, ...] = ()
    why: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `repair --json` prints."""
        told: dict[str, Any] = {"dir": str(self.folder), "repaired": bool(self.why), "why": self.why, "kept": [str(p) for p in self.kept]}
        if self.salvaged is not None:
            told |= {"lines": {"kept": self.lines[0], "before": self.lines[1]}}
            told |= {name: getattr(self.salvaged, name) for name in ("ended", "rebuilt", "go_on", "lost", "shortened", "dropped")}
        content: dict[str, Any] = to_json_value(told)
        return content


def repair(sweep: str | os.PathLike[str]) -> Repaired:
    """Rebuild the study of a sweep from the readable lines of its journal and from its result.

    The damaged files are kept under other names. A result that is damaged or contradicts the study is renamed too, so that the sweep can be
    resumed. If nothing is damaged, no file is changed.

    Args:
        sweep: The sweep's folder. The sweep must not be running.

    Returns:
        The problems that were found, and what was done.

    Raises:
        InputError: There is no such sweep, its study is in a database, the folder belongs to another user, or its space file cannot be
            read.
        SweepLocked: The sweep runs.
    """
    from sweeps.search.journal_rebuild import first_fault
    from sweeps.study.journal import whole_lines

    folder = Path(sweep).resolve()
    read_origin(folder)
    journal, result = SweepFolder(folder).journal, SweepFolder(folder).result
    if (place := place_of(folder)) is not None:
        said = f"the study lies in {without_password(place[0])}, and only journals are repaired; restore the database from a backup"
        raise InputError(Problem(str(folder), said))
    _refuse_others(folder)
    lock = FolderLock(folder)
    try:
        data = journal.read_bytes() if journal.exists() else b""
        lines, told = whole_lines(data), read_result(folder)
        salvaged, why = None, list[str]()
        if (found := first_fault(lines)) is not None:
            why.append(f"{JOURNAL}:{found[0]}: {found[1]}")
        if found is not None or (told is not None and _contradicts(folder)):
            salvaged = _salvaged(folder, lines, told)
        if salvaged is not None and found is None:
            why.append(f"{JOURNAL}: {_contradicts(folder)}")
        if faulty := result_file_error(result):
            why.append(f"{RESULT}: {faulty}")
        if not why:
            return Repaired(folder)
        number = _free(folder)
        kept = []
        if salvaged is not None and salvaged.changed:
            kept += [_keep(journal, data, number)] if journal.exists() else []
            write_bytes(journal, b"".join(salvaged.lines))
        if faulty or (salvaged is not None and salvaged.contradiction is not None):
            kept.append(_aside(result, number))
        if salvaged is not None:
            kept += [_aside(path, number) for trial in salvaged.lost if (path := _trial(folder, trial)) is not None]
        return Repaired(folder, _counted(lines, salvaged), salvaged, tuple(kept), tuple(why))
    finally:
        lock.release()


def _contradicts(folder: Path) -> str | None:
    """Return how the study contradicts the sweep's result, or why it cannot be read; None if there is no problem."""
    from sweeps.core.errors import DamagedStudy
    from sweeps.study import record

    try:
        record.trials_of(folder)
    except DamagedStudy as e:
        return e.problems[0].text.partition("; ")[0]
    return None


def _salvaged(folder: Path, lines: list[bytes], told: Mapping[str, Any] | None) -> Salvaged:
    from sweeps.search.journal_rebuild import Known, salvage

    space, _ = saved_space(folder)
    entries = provenance.read_entries(folder)
    data = entries[0].get("data_fingerprint") if entries else None
    saved = {best["trial"]: found for best in best_trials(told or {"best": None}) if (found := _saved(folder, best["trial"])) is not None}
    when = (folder / (RESULT if told is not None else "origin.json")).stat().st_mtime
    there = SweepFolder(folder).trials.glob("*")
    trials = frozenset(int(path.name) for path in there if re.fullmatch(r"\d{4,9}", path.name) and _trial(folder, path.name) is not None)
    return salvage(lines, told, Known(space, when, data if isinstance(data, str) else None, saved, trials))


def _saved(folder: Path, trial: str) -> Checkpoint | None:
    """Return the checkpoint that most likely has the best model of a trial.

    This is the checkpoint from which the sweep's bundle was made, or else the latest checkpoint. None if the trial has no checkpoint.
    """
    at = _trial(folder, trial)
    if at is None:
        return None
    made = (read_json_object(SweepFolder(folder).bundle / MANIFEST) or {}).get("made")
    exported = made.get("best_step") if isinstance(made, dict) and made.get("trial") == trial else None
    found = []
    for path in sorted(at.glob("checkpoint_*"), key=lambda p: step_of(p.name)):
        if path.is_symlink() or not path.is_dir() or path.name.endswith(GONE):
            continue
        step = step_of(path.name)
        noted = (read_json_object(path / CHECKPOINT_NOTE) or {}).get("best_step", step)
        found.append(Checkpoint(str(path), step, noted if type(noted) is int and 0 < noted <= step else step))
    return next((c for c in found if c.best_step == exported), found[-1] if found else None)


# Files


def _refuse_others(folder: Path) -> None:
    """Check that this user owns the sweep's folder and the files that a repair writes, and that none of these is a symbolic link.

    Raises:
        InputError: A path belongs to another user or is a symbolic link, or the journal is not a regular file.
    """
    for path in (folder, SweepFolder(folder).journal, SweepFolder(folder).result, SweepFolder(folder).trials):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            raise InputError(Problem(str(path), "is a link, and a repair touches nothing outside the sweep's folder"))
        if found.st_uid != os.getuid():
            raise InputError(Problem(str(path), "belongs to another user; only its owner can repair it"))
        if path.name == JOURNAL and not stat.S_ISREG(found.st_mode):
            raise InputError(Problem(str(path), "is no file"))


def _trial(folder: Path, trial: str) -> Path | None:
    """Return the folder of a trial; None if the folder does not exist or is a symbolic link."""
    path = SweepFolder(folder).trial(trial)
    return path if path.is_dir() and not path.is_symlink() else None


def _free(folder: Path) -> int:
    """Return a number above those of all damaged files that were kept before."""
    names = [path.name for place in (folder, SweepFolder(folder).trials) if place.is_dir() for path in place.glob(f"*{DAMAGED}*")]
    taken = [int(tail) for name in names if (tail := name.rpartition(DAMAGED)[2]).isdecimal()]
    return max(taken, default=0) + 1


def _keep(file: Path, data: bytes, number: int) -> Path:
    """Write the content of a damaged file to a new file, and return the path of the new file."""
    kept = file.with_name(f"{file.name}{DAMAGED}{number}")
    with open(kept, "xb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    return kept


def _aside(path: Path, number: int) -> Path:
    """Rename a damaged file or folder, and return the new path."""
    kept = path.with_name(f"{path.name}{DAMAGED}{number}")
    path.rename(kept)
    return kept


def _counted(lines: list[bytes], salvaged: Salvaged | None) -> tuple[int, int]:
    return (len(lines) - len(salvaged.dropped) if salvaged is not None else len(lines)), len(lines)
