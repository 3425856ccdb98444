"""Rebuild the damaged study of a sweep from its readable parts.

The damaged files are kept under other names.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from sweeps.core import provenance
from sweeps.core.atomic_files import write_bytes
from sweeps.core.checkpoint_files import GONE, step_of
from sweeps.core.command_hints import resume_command
from sweeps.core.errors import InputError
from sweeps.core.folder_lock import FolderLock
from sweeps.core.json_files import read_json_object
from sweeps.core.origin import read_origin
from sweeps.core.regular_files import FOLDER, read_bytes, refuse_other_kind
from sweeps.core.result import best_trials, read_result, result_file_error, to_json_value
from sweeps.core.secrets import without_password
from sweeps.core.stores import recorded_store
from sweeps.core.sweep_folder import CHECKPOINTS, JOURNAL, MANIFEST, ORIGIN, RESULT, SweepFolder
from sweeps.core.trial import CHECKPOINT_NOTE, Checkpoint
from sweeps.search.journal_rebuild import RebuiltJournal
from sweeps.space.saved_space import saved_space
from sweeps.study.storage import place_of

# Text between the name of a damaged file and a number, in the name under which the file is kept.
DAMAGED = ".damaged-"


@dataclass(frozen=True)
class RepairResult:
    """Result of a repair.

    Attributes:
        folder: The sweep's folder.
        lines: Number of lines of the journal before the repair.
        rebuilt: The new journal, with what the repair did to each trial. None if the journal needed
            no repair.
        kept: Paths under which the damaged files and folders are kept.
        problems: Description of each problem that was found, in one line; () if nothing was
            damaged.
    """

    folder: Path
    lines: int = 0
    rebuilt: RebuiltJournal | None = None
    kept: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON object that `repair --json` prints."""
        shown: dict[str, object] = {
            "dir": str(self.folder),
            "repaired": bool(self.problems),
            "why": self.problems,
            "kept": list(map(str, self.kept)),
        }
        if self.rebuilt is not None:
            shown["lines"] = {"kept": self.lines - len(self.rebuilt.dropped), "before": self.lines}
            names = ("restored", "unfinished", "ended", "lost", "shortened", "dropped")
            shown |= {name: getattr(self.rebuilt, name) for name in names}
        content: dict[str, JsonValue] = to_json_value(shown)
        return content


def repair(sweep: str | os.PathLike[str]) -> RepairResult:
    """Rebuild the study of a sweep from the readable lines of its journal and from its result.

    The damaged files are kept under other names. If the result is damaged or contradicts the study,
    it is also renamed, so that the sweep can be resumed. If nothing is damaged, no file is changed.

    Args:
        sweep: The sweep's folder. The sweep must not be running.

    Returns:
        The problems that were found, and the changes that were made.

    Raises:
        InputError: There is no such sweep, its study is in a database, the folder belongs to
            another user, or its space file cannot be read.
        SweepLocked: The sweep runs.
    """
    folder = Path(sweep).resolve()
    read_origin(folder)
    if (place := place_of(folder)) is not None:
        text = (
            f"the study is in {without_password(place[0])}, but only a journal file can be "
            "repaired; restore the database from a backup"
        )
        raise InputError(str(folder), text)
    if (store := recorded_store(folder)) is not None:
        text = (
            f"the sweep is stored in {store}; `{resume_command(folder)}` replaces a damaged study "
            "by the study in the store"
        )
        raise InputError(str(folder), text)
    _check_owner(folder)
    with FolderLock(folder):
        return _repair(folder)


def _repair(folder: Path) -> RepairResult:
    from sweeps.search.journal_rebuild import first_fault
    from sweeps.study.journal import whole_lines

    journal, result = SweepFolder(folder).journal, SweepFolder(folder).result
    data = read_bytes(journal) if journal.exists() else b""
    lines, shown = whole_lines(data), read_result(folder)
    rebuilt, problems = None, list[str]()
    if (fault := first_fault(lines)) is not None:
        problems.append(f"{JOURNAL}:{fault[0]}: {fault[1]}")
    elif shown is not None and (contradiction := _contradiction(folder)) is not None:
        problems.append(f"{JOURNAL}: {contradiction}")
    if problems:
        rebuilt = _rebuild(folder, lines, shown)
    if result_fault := result_file_error(result):
        problems.append(f"{RESULT}: {result_fault}")
    if not problems:
        return RepairResult(folder)
    number, moved = _next_number(folder), list[Path]()
    if rebuilt is not None and rebuilt.changed:
        if journal.exists():
            moved.append(_damaged_name(journal, number))
            write_bytes(moved[0], data, sync=True)
        write_bytes(journal, b"".join(rebuilt.lines))
    to_move = [
        path
        for trial in (rebuilt.lost if rebuilt else ())
        if (path := _trial_folder(folder, trial)) is not None
    ]
    if result_fault or (rebuilt is not None and rebuilt.contradiction is not None):
        to_move.insert(0, result)
    moved += [path.rename(_damaged_name(path, number)) for path in to_move]
    return RepairResult(folder, len(lines), rebuilt, tuple(moved), tuple(problems))


def _contradiction(folder: Path) -> str | None:
    """Return how the study contradicts the sweep's result, or why the study cannot be read.

    Return None if there is no problem.
    """
    from sweeps.core.errors import DamagedStudy
    from sweeps.study import record

    try:
        record.trials_of(folder)
    except DamagedStudy as e:
        return e.problems[0].text.partition("; ")[0]
    return None


def _rebuild(folder: Path, lines: list[bytes], shown: Mapping[str, Any] | None) -> RebuiltJournal:
    from sweeps.search.journal_rebuild import rebuild
    from sweeps.search.trial_repair import SweepFacts

    space, _ = saved_space(folder)
    entries = provenance.read_entries(folder)
    data = entries[0].get("data_fingerprint") if entries else None
    best = [trial["trial"] for trial in best_trials(shown or {"best": None})]
    saved = {
        trial: checkpoint
        for trial in best
        if (checkpoint := _best_checkpoint(folder, trial)) is not None
    }
    when = (folder / (RESULT if shown is not None else ORIGIN)).stat().st_mtime
    names = [
        path.name
        for path in SweepFolder(folder).trials.glob("*")
        if re.fullmatch(r"\d{4,9}", path.name)
    ]
    trials = frozenset(int(name) for name in names if _trial_folder(folder, name) is not None)
    points: Sequence[Mapping[str, Any]] = ()
    if space.search.earlier:
        from sweeps.search import earlier_trials
        from sweeps.search.samplers.cell_sampler import starting_points_of

        with contextlib.suppress(InputError):  # The file of the earlier trials may be damaged too.
            points = starting_points_of(space, earlier_trials.read(folder, space))
    return rebuild(
        lines,
        shown,
        SweepFacts(space, when, data if isinstance(data, str) else None, saved, trials, points),
    )


def _best_checkpoint(folder: Path, trial: str) -> Checkpoint | None:
    """Return the checkpoint that most likely has the best model of a trial.

    This is the checkpoint from which the sweep's bundle was made. If there is no bundle, or the
    bundle is of another trial, it is the latest checkpoint. Return None if the trial has no
    checkpoint.
    """
    if (trial_folder := _trial_folder(folder, trial)) is None:
        return None
    made = (read_json_object(SweepFolder(folder).bundle / MANIFEST) or {}).get("training")
    exported = (
        made.get("best_step") if isinstance(made, dict) and made.get("trial") == trial else None
    )
    checkpoints = []
    for path in sorted(trial_folder.glob(CHECKPOINTS), key=lambda p: step_of(p.name)):
        if path.is_dir() and not path.is_symlink() and not path.name.endswith(GONE):
            step = step_of(path.name)
            noted = (read_json_object(path / CHECKPOINT_NOTE) or {}).get("best_step", step)
            checkpoints.append(
                Checkpoint(
                    str(path), step, noted if type(noted) is int and 0 < noted <= step else step
                )
            )
    return next(
        (c for c in checkpoints if c.best_step == exported),
        checkpoints[-1] if checkpoints else None,
    )


# Files


def _check_owner(folder: Path) -> None:
    """Check that this user owns the sweep's folder and the files that a repair changes, and that the journal is a regular file.

    Raises:
        InputError: A path belongs to another user, or holds another kind than sweeps writes.
    """
    sweep = SweepFolder(folder)
    refuse_other_kind(sweep.journal)
    refuse_other_kind(sweep.trials, FOLDER)
    for path in (folder, sweep.journal, sweep.result, sweep.trials):
        if os.path.lexists(path) and path.lstat().st_uid != os.getuid():
            raise InputError(str(path), "belongs to another user; only its owner can repair it")


def _trial_folder(folder: Path, trial: str) -> Path | None:
    """Return the folder of a trial; None if the folder does not exist or is a symbolic link."""
    path = SweepFolder(folder).trial(trial)
    return path if path.is_dir() and not path.is_symlink() else None


def _damaged_name(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}{DAMAGED}{number}")


def _next_number(folder: Path) -> int:
    """Return a number that is higher than the numbers in the names of all damaged files from earlier repairs."""
    paths = [*folder.glob(f"*{DAMAGED}*"), *SweepFolder(folder).trials.glob(f"*{DAMAGED}*")]
    numbers = [
        int(tail) for path in paths if (tail := path.name.rpartition(DAMAGED)[2]).isdecimal()
    ]
    return max(numbers, default=0) + 1
