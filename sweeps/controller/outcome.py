"""The end of a sweep: what its result says, and whether a resume has anything to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.core.command_hints import resume_command
from sweeps.core.errors import SweepFailed
from sweeps.core.trial import Result, State
from sweeps.space.section_models import Constraint


def counts(results: Iterable[Result]) -> dict[str, int]:
    """Return the number of trials by state, as `SweepResult.trials` has them. Initial points with given values do not count."""
    states = [r.state for r in results if not r.given]
    ended = {"completed": states.count(State.COMPLETE), "pruned": states.count(State.PRUNED), "failed": states.count(State.FAIL)}
    interrupted = states.count(State.RUNNING)
    return ended | ({"interrupted": interrupted} if interrupted else {})


def notes(
    counts: Mapping[str, int], failures: Sequence[tuple[str, str]], constraints: Sequence[Constraint], best: Result | None, front: bool
) -> tuple[str, ...]:
    """Return the notes of a result, one line each.

    Args:
        counts: Number of trials by state; see `counts`.
        failures: Id and traceback of each failed trial, in the order of their ends.
        constraints: The constraints of the space.
        best: Result of the best trial; None if there is none.
        front: True if there are several objectives and a Pareto front.
    """
    lines = []
    if failures:
        number, first, error = _describe_failures(counts, failures)
        lines.append(f"{number} failed; {first}: {error.splitlines()[-1]} (tracebacks: sweep.log)")
    if best is not None and not best.feasible:
        unreported = [c.metric for c in constraints if c.metric not in best.metrics]
        never = f", and it never reported {', '.join(unreported)}" if unreported else ""
        lines.append(f"no trial keeps the constraints ({', '.join(map(str, constraints))}); the best of those that do not is shown{never}")
    if front:
        lines.append("several objectives: nothing is exported before `sweeps export`, of one with --trial, of the front with --pareto")
    return tuple(lines)


def failed(counts: Mapping[str, int], failures: Sequence[tuple[str, str]], reason: str | None, folder: Path) -> SweepFailed | None:
    """Return the error of a sweep without any value. Return None if it was interrupted before any trial failed.

    Args:
        counts: Number of trials by state; see `counts`.
        failures: Id and traceback of each failed trial, in the order of their ends.
        reason: Why the sweep ended early; None if it did not.
        folder: The sweep's folder.
    """
    if failures:
        number, first, error = _describe_failures(counts, failures)
        return SweepFailed(f"{number} failed and none came to a value; {first}:\n{error}\n\nfolder  {folder}")
    if reason != "interrupted":
        limit = str(reason).partition(":")[0]
        hint = f"\nto go on with more of it: {resume_command(folder)} --set {limit}=..." if limit.startswith("limits.") else ""
        return SweepFailed(f"no trial came to a value ({reason or 'none was run'})\n\nfolder  {folder}{hint}")
    return None


def _describe_failures(counts: Mapping[str, int], failures: Sequence[tuple[str, str]]) -> tuple[str, str, str]:
    """Return texts for the number of failed trials and for the first of them, and its traceback."""
    trial, error = failures[0]
    return ("1 trial", trial, error) if counts["failed"] == 1 else (f"{counts['failed']} trials", f"the first, {trial}", error)


def goes_on(earlier: Mapping[str, Any], to_run: int, changed: bool) -> bool:
    """Return whether a resume has anything to do for a sweep that has a result.

    Args:
        earlier: The result, as a JSON object.
        to_run: Number of trials that have not ended.
        changed: True if the limits have changed.
    """
    reason = earlier.get("reason")
    # The user may have removed the cause of the failures.
    resumable = reason == "interrupted" or str(reason).startswith("limits.max_failures_in_a_row")
    return to_run > 0 and (reason is None or resumable or changed or not (earlier.get("best") or earlier.get("front")))


def nothing_left(reason: str | None) -> str:
    """Return the note for a resume with nothing left to do: why the sweep ended, and what would continue it."""
    if reason:
        return f"nothing was left to do: it ended by {reason}; --set limits.KEY=VALUE changes a limit"
    return "nothing was left to do: every trial has ended; --add-trials N adds trials"
