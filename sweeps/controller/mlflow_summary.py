"""What MLflow is told of a sweep as a whole: what it is, what it came to; and all of it once more, where MLflow was away."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sweeps.controller import outcome
from sweeps.core import crash_cleanup, provenance
from sweeps.core.command_hints import resume_of
from sweeps.core.result import SweepResult
from sweeps.core.sweep_folder import RESULT, without_password
from sweeps.core.trial import Trial
from sweeps.space import Space
from sweeps.study import storage

# How the note begins that says what MLflow has missed.
UNTOLD = "MLflow at "


def introduce(tracker: Any, folder: Path, space: Space, fingerprint: str, commit: dict[str, str] | None) -> None:
    """What the sweep is.

    Args:
        tracker: see `sweeps.tracking`.
        folder, space: the sweep's.
        fingerprint: of its data.
        commit: see `provenance.git`; None for one that is told already, or not known.
    """
    tags = {"sweeps.data_fingerprint": fingerprint, "sweeps.space": space.text[:4000], "sweeps.dir": str(folder)}
    tags |= {"mlflow.source.git.commit": commit["commit"], "sweeps.git_dirty": commit["dirty"]} if commit else {}
    tracker.tag_parent(tags)
    tracker.describe(space)
    tracker.artifact("space.yaml", space.text)


def on_record(folder: Path, space: Space) -> Any:
    """Reads what there is to tell of the trials; see `Tracker.go_on`."""
    from sweeps.search.trial_building import OnRecord

    return OnRecord(folder, space, (storage.place_of(folder) or (None,))[0])


def conclude(tracker: Any, result: SweepResult, ended: float, before: Collection[int] = ()) -> None:
    """What the sweep came to; `before` are the trials of the front that an earlier driver came to."""
    front = {int(best["trial"]) for best in result.front}
    for n in front:
        tracker.tag(n, {"sweeps.front": "true"})
    for n in set(before) - front:
        tracker.tag(n, {"sweeps.front": "false"})
    tracker.tag_parent(outcome.tags(result))
    tracker.metrics(outcome.metrics(result), ended)


def again(
    tracker: Any, folder: Path, space: Space, fingerprint: str, result: SweepResult, best: Trial | None, others: Collection[int] = ()
) -> SweepResult:
    """All that MLflow may have missed of a sweep that has come to its end, of which nothing is changed.

    Args:
        tracker, folder, space, fingerprint: see `introduce`.
        result: what the sweep came to, as `kept` wrote it.
        best: the winner.
        others: trials that an earlier driver may have had in the front.

    Returns:
        The result, see `kept`.
    """
    ended = result.mlflow.get("ended") or (folder / RESULT).stat().st_mtime  # by a driver before 2026-11-22
    notes = tuple(note for note in result.notes if not note.startswith(UNTOLD))
    before = {name: result.mlflow.get(name) for name in ("tracking_uri", "experiment", "parent_run")}
    result = dataclasses.replace(result, notes=notes, mlflow=before)
    introduce(tracker, folder, space, fingerprint, provenance.of_last(folder))
    tracker.go_on(on_record(folder, space))
    for file in (*folder.glob("code*.diff"), folder / provenance.KEPT):
        if file.is_file():
            tracker.artifact(file.name, file.read_text(encoding="utf-8"))
    tracker.artifact(RESULT, result.as_text())
    conclude(tracker, result, ended, others)
    made = [folder / f"report.{kind}" for kind in ("md", "html")]
    if all(file.is_file() for file in made):
        tracker.report(*(file.read_text(encoding="utf-8") for file in made), best)
    tracker.finish(outcome.status(result), ended)
    return kept(tracker, tracker.close(), result, ended)


def kept(tracker: Any, told: bool, result: SweepResult, ended: float) -> SweepResult:
    """The result, written to the sweep's folder, with what MLflow knows of it.

    Args:
        tracker: see `sweeps.tracking`; it is closed.
        told: it got everything that it did not refuse.
        result: the sweep's.
        ended: when the search came to its end, by the clock that MLflow is told.
    """
    notes, mlflow = list(result.notes), place(tracker)
    if mlflow["parent_run"] is None and mlflow["tracking_uri"] == result.mlflow.get("tracking_uri"):
        mlflow = dict(result.mlflow)  # it did not answer this time
    if not told or tracker.error:
        why = f"did not get everything: {tracker.error or 'it did not answer'}"
        notes.append(
            f"{UNTOLD}{without_password(tracker.uri)} {why}; the study has it all, and this sends it again: {resume_of(result.dir)}"
        )
        mlflow |= {"missed": True, "ended": ended}
    result = dataclasses.replace(result, notes=tuple(notes), mlflow=mlflow)
    crash_cleanup.write(result.dir / RESULT, result.as_text())
    return result


def place(tracker: Any) -> dict[str, Any]:
    """Where in MLflow a sweep is, for its result."""
    return {"tracking_uri": without_password(tracker.uri), "experiment": tracker.experiment, "parent_run": tracker.parent}
