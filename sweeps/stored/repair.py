"""Repair a damaged sweep: keep its whole trials. The damaged files are kept under other names."""

import itertools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from sweeps.core.errors import DamagedStudy, InputError
from sweeps.core.files.atomic_files import write_bytes
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.origin import read_origin
from sweeps.core.files.regular_files import FOLDER, kind_of, read_bytes, refuse_other_kind
from sweeps.core.files.result_file import result_error
from sweeps.core.files.stores import recorded_store
from sweeps.core.files.sweep_folder import RESULT, SweepFolder
from sweeps.core.text.command_hints import resume_command
from sweeps.core.text.secrets import without_password
from sweeps.space.python.saved_space import saved_space
from sweeps.study import record_reader
from sweeps.study.storage import place_of

# Text between the name of a damaged file and a number, in the name under which the file is kept.
DAMAGED = ".damaged-"


@dataclass(frozen=True)
class RepairResult:
    """Result of a repair.

    Attributes:
        folder: The sweep's folder.
        problems: Description of each problem that was found, in one line; () if nothing was
            damaged.
        kept: Paths under which the damaged files and folders are kept.
        trials: Ids of the trials in the repaired study, by what the repair found: `ended`,
            `unfinished` (a resumed sweep continues them) and `lost` (a resumed sweep samples them
            again). {} if the study needed no repair.
    """

    folder: Path
    problems: tuple[str, ...] = ()
    kept: tuple[Path, ...] = ()
    trials: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON object that `repair --json` prints."""
        return {
            "dir": str(self.folder),
            "repaired": bool(self.problems),
            "why": list(self.problems),
            "kept": [str(path) for path in self.kept],
            **{name: list(ids) for name, ids in self.trials.items()},
        }


def repair(sweep: str | os.PathLike[str]) -> RepairResult:
    """Keep the whole trials of a sweep whose study is damaged.

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
        raise InputError(
            str(folder),
            f"the study is in {without_password(place[0])}, but only a journal file can be "
            "repaired; restore the database from a backup",
        )
    if (store := recorded_store(folder)) is not None:
        raise InputError(
            str(folder),
            f"the sweep is stored in {store}; `{resume_command(folder)}` replaces a damaged study "
            "by the study in the store",
        )
    _check_owner(folder)
    with FolderLock(folder):
        return _repair(folder)


def _repair(folder: Path) -> RepairResult:
    """Repair the study, and rename a result that is damaged or does not fit the study."""
    result = SweepFolder(folder).result
    problems: list[str] = []
    kept: list[Path] = []
    trials: dict[str, list[str]] = {}
    if (problem := _study_problem(folder)) is not None:
        problems.append(problem)
        trials = _repair_study(folder, kept)
    result_problem = result_error(folder)
    if result_problem is not None:
        problems.append(f"{RESULT}: {result_problem}")
    # The repaired study may contradict the result.
    if result_problem is not None or _study_problem(folder) is not None:
        kept.append(result.rename(_damaged_name(result)))
    return RepairResult(folder, tuple(problems), tuple(kept), trials)


def _study_problem(folder: Path) -> str | None:
    """Return what is wrong with the study, or how it contradicts the sweep's result; else None."""
    try:
        record_reader.read(folder)
    except DamagedStudy as e:
        problem = e.problems[0]
        return f"{Path(problem.place).name}: {problem.text.partition('; ')[0]}"
    return None


def _repair_study(folder: Path, kept: list[Path]) -> dict[str, list[str]]:
    """Rebuild the journal, and rename the folders of lost trials.

    Args:
        folder: The sweep's folder.
        kept: The new names are added to this list.

    Returns:
        See `RepairResult.trials`.
    """
    from sweeps.study.journal_repair import rebuild

    journal = SweepFolder(folder).journal
    data = read_bytes(journal) if journal.exists() else b""
    space, _ = saved_space(folder)
    rebuilt = rebuild(data, space)
    if rebuilt.data != data:
        if journal.exists():
            kept.append(_damaged_name(journal))
            write_bytes(kept[-1], data, sync=True)
        write_bytes(journal, rebuilt.data)
    known = {*rebuilt.ended, *rebuilt.unfinished}
    unknown = [
        path
        for path in sorted(SweepFolder(folder).trials.glob("*"))
        if re.fullmatch(r"\d{4,9}", path.name)
        and kind_of(path) == FOLDER
        and path.name not in known
    ]
    kept += [path.rename(_damaged_name(path)) for path in unknown]
    return {
        "ended": list(rebuilt.ended),
        "unfinished": list(rebuilt.unfinished),
        "lost": sorted({*rebuilt.lost, *(path.name for path in unknown)}),
    }


def _check_owner(folder: Path) -> None:
    """Check that this user owns the sweep's folder and the files that a repair changes.

    Also check that the journal is a regular file.

    Raises:
        InputError: A path belongs to another user, or holds another kind than sweeps writes.
    """
    sweep = SweepFolder(folder)
    refuse_other_kind(sweep.journal)
    refuse_other_kind(sweep.trials, FOLDER)
    for path in (folder, sweep.journal, sweep.result, sweep.trials):
        if os.path.lexists(path) and path.lstat().st_uid != os.getuid():
            raise InputError(str(path), "belongs to another user; only its owner can repair it")


def _damaged_name(path: Path) -> Path:
    """Return the first name of a damaged file or folder that is free."""
    names = (path.with_name(f"{path.name}{DAMAGED}{number}") for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))
