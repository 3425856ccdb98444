"""The end of a sweep: what its result says, and what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.core.command_hints import resume_command
from sweeps.core.errors import SweepFailed
from sweeps.core.trial import Result, State
from sweeps.space.section_models import Constraint


def counts(results: Iterable[Result]) -> dict[str, int]:
    """Trials by how they ended, as `SweepResult.trials` has them; those that were not run are left out."""
    states = [r.state for r in results if not r.given]
    found = {"completed": states.count(State.COMPLETE), "pruned": states.count(State.PRUNED), "failed": states.count(State.FAIL)}
    interrupted = states.count(State.RUNNING)
    return found | ({"interrupted": interrupted} if interrupted else {})


def notes(
    counts: Mapping[str, int], failures: Sequence[tuple[str, str]], constraints: Sequence[Constraint], best: Result | None, front: bool
) -> tuple[str, ...]:
    """What the user should know, a line each.

    Args:
        counts: see `counts`.
        failures: trial and traceback of each that failed, the first first.
        constraints: of the sweep.
        best: how the best trial ended; None if there is none.
        front: there are several objectives, and trials that came to a value.
    """
    said = []
    if failures:
        number, first, text = _failures(counts, failures)
        said.append(f"{number} failed; {first}: {text.splitlines()[-1]} (tracebacks: sweep.log)")
    if best is not None and not best.feasible:
        absent = [c.metric for c in constraints if c.metric not in best.metrics]
        never = f", and it never reported {', '.join(absent)}" if absent else ""
        said.append(f"no trial keeps the constraints ({', '.join(map(str, constraints))}); the best of those that do not is shown{never}")
    if front:
        said.append("several objectives: nothing is exported before `sweeps export`, of one with --trial, of the front with --pareto")
    return tuple(said)


def failed(counts: Mapping[str, int], failures: Sequence[tuple[str, str]], reason: str | None, folder: Path) -> SweepFailed | None:
    """What is wrong with a sweep in which no trial came to a value; None if it was interrupted before any could."""
    if failures:
        number, first, text = _failures(counts, failures)
        return SweepFailed(f"{number} failed and none came to a value; {first}:\n{text}\n\nfolder  {folder}")
    if reason != "interrupted":
        limit = str(reason).partition(":")[0]
        more = f"\nto go on with more of it: {resume_command(folder)} --set {limit}=..." if limit.startswith("limits.") else ""
        return SweepFailed(f"no trial came to a value ({reason or 'none was run'})\n\nfolder  {folder}{more}")
    return None


def _failures(counts: Mapping[str, int], failures: Sequence[tuple[str, str]]) -> tuple[str, str, str]:
    """How many trials failed, which was the first, and of what."""
    trial, text = failures[0]
    return ("1 trial", trial, text) if counts["failed"] == 1 else (f"{counts['failed']} trials", f"the first, {trial}", text)


def goes_on(said: Mapping[str, Any], to_run: int, changed: bool) -> bool:
    """Whether there is something to do for a sweep that came to an end and is resumed.

    Args:
        said: the object of its `SweepResult`.
        to_run: trials that are not begun or not ended.
        changed: its limits are others than before.
    """
    reason = said.get("reason")
    stopped = reason == "interrupted" or str(reason).startswith("limits.max_failures_in_a_row")  # whose cause may be mended now
    return to_run > 0 and (reason is None or stopped or changed or not (said.get("best") or said.get("front")))
