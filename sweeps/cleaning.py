"""`sweeps gc`: delete the checkpoints that nothing needs any more of a sweep that does not run."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import InputError, Problem
from sweeps.search.retention import Held, Rule, droppable

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Freed:
    """What was deleted, or would be.

    Attributes:
        checkpoints: how many.
        trials: of how many trials.
        bytes: in all.
        left: bytes of the checkpoints that stay.
    """

    checkpoints: int
    trials: int
    bytes: int
    left: int


def clean(folder: Path, rule: Rule, dry_run: bool = False) -> Freed:
    """Delete checkpoints by a rule.

    Args:
        folder: the sweep's.
        rule: what to keep; a trial that can be resumed and the best one keep theirs in any case.
        dry_run: delete nothing.

    Raises:
        InputError: no such sweep.
        SweepLocked: the sweep runs.
    """
    from sweeps.folder import saved_space
    from sweeps.search import record
    from sweeps.search.lock import FolderLock
    from sweeps.search.study import Ledger
    from sweeps.trial import State

    space, _ = saved_space(folder)
    lock = FolderLock(folder)
    try:
        ledger = Ledger(folder, space, ())
        results = ledger.results()
        on_disk = {n: _sizes(folder / "trials" / f"{n:04d}") for n in results}
        states = {t.number: record.so_far(t) for t in ledger.study.get_trials(deepcopy=False) if t.number in results}

        def named(number: int, which: str) -> str | None:
            stored = states.get(number, {}).get(which)
            return Path(stored["path"]).name if stored else None

        held = [Held(n, r.state is not State.RUNNING, on_disk[n], named(n, "best"), named(n, "checkpoint")) for n, r in results.items()]
        ranked = [n for n in ledger.ranked() if results[n].checkpoint is not None]
        gone = droppable(held, ranked, rule)
        size = sum(on_disk[n][name] for n, name in gone)
        if not dry_run:
            for n, name in gone:
                shutil.rmtree(folder / "trials" / f"{n:04d}" / name)
        total = sum(sum(files.values()) for files in on_disk.values())
        return Freed(len(gone), len({n for n, _ in gone}), size, total - size)
    finally:
        lock.release()


def _sizes(folder: Path) -> dict[str, int]:
    """Each checkpoint's name -> its bytes."""
    return {p.name: sum(f.stat().st_size for f in p.rglob("*") if f.is_file()) for p in sorted(folder.glob("checkpoint_*")) if p.is_dir()}


def bytes_of(text: str) -> int:
    """`10GB` as bytes.

    Raises:
        InputError: it is no size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)", text.strip().upper())
    if not found:
        raise InputError(Problem("--max-disk", f"`{text}` is no size; write it as 500MB or 10GB"))
    return int(float(found[1]) * UNITS[found[2]])
