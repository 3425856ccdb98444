"""Write one JSON object for each event to `events.jsonl` in the sweep's folder."""

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from pydantic import JsonValue

from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.result import to_json_value
from sweeps.core.text.secrets import masked
from sweeps.core.trial import State
from sweeps.study import events

# Fields of `Result` that are written at the end of a trial.
RESULT_FIELDS = (
    "value",
    "values",
    "best_step",
    "steps",
    "seconds",
    "feasible",
    "metrics",
    "final",
    "error",
    "reason",
)


class JsonLinesTracker:
    """Appends every event to a file. Each reported step is a separate line.

    After a resume, the tracker reads the file and adds the missing lines about trials of earlier
    drivers. Each step and each end of a trial is therefore written once. Only the start of a trial
    may be written more than once.
    """

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._steps: set[tuple[str, int]] = set()  # (trial id, step) of the reports in the file
        self._ended: set[str] = set()  # ids of trials whose end is in the file

    def handle(self, event: events.Event) -> None:
        """Append an event."""
        if isinstance(event, events.SweepStarted):
            self._open(SweepFolder(event.folder).events)
        if self._file is None:  # The sweep never started.
            return
        for line in self._lines(event):
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
        if isinstance(event, events.SweepStarted) and event.history is not None:
            complete = {int(trial_id) for trial_id in self._ended}
            for earlier in event.history(complete):
                self.handle(earlier)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> None:
        """Read the file, and open it for appending.

        If a crash has cut off the last line, remove that line.
        """
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(sum(map(len, lines[:-1])))
            lines.pop()
        for line in lines:
            self._remember(line)
        self._file = path.open("a", encoding="utf-8")

    def _remember(self, line: bytes) -> None:
        """Note the report or the end of a trial that a line of the file has."""
        try:
            known = json.loads(line)
            if known["type"] == "TrialReported":
                self._steps.add((known["trial"], known["step"]))
            elif known["type"] == "TrialEnded" and known["state"] != "INTERRUPTED":
                self._ended.add(known["trial"])
        except (ValueError, KeyError, TypeError):  # Somebody has edited the file.
            return

    def _lines(self, event: events.Event) -> Iterator[dict[str, JsonValue]]:
        """Yield the JSON objects of an event, except those that are already in the file."""
        if isinstance(event, events.TrialReported):
            for report in event.reports:
                key = (event.trial_id, report.step)
                if key not in self._steps:
                    self._steps.add(key)
                    content = {"step": report.step, "metrics": report.metrics}
                    yield _line(event, content, report.time)
            return
        if isinstance(event, events.TrialDecided) and event.perturbation is None:
            return
        if isinstance(event, events.TrialEnded):
            if event.trial_id in self._ended:
                return
            if event.result.state is not State.RUNNING:  # an interrupted trial may continue
                self._ended.add(event.trial_id)
        yield _line(event, to_json(event), event.time)


def _line(event: events.Event, content: dict[str, object], seconds: float) -> dict[str, JsonValue]:
    """Return the JSON object of an event.

    Args:
        event: The event.
        content: The content, apart from type, time and trial.
        seconds: Time of the event, in seconds since the epoch.
    """
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds")
    trial = {"trial": event.trial_id} if isinstance(event, events.TrialEvent) else {}
    return json_value({"type": type(event).__name__, "time": time, **trial, **content})


def to_json(event: events.Event) -> dict[str, object]:
    """Return the content of an event, apart from its type, time and trial.

    Return {} for an event type of a later version.
    """
    match event:
        case events.SweepStarted(space=space):
            return {
                "sweep": event.sweep,
                "name": space.name,
                "resumed": event.history is not None,
                "objectives": [{"metric": o.metric, "goal": o.goal} for o in space.objectives],
                "fingerprint": event.fingerprint,
                "git_commit": event.git_commit,
                "git_dirty": event.git_dirty,
            }
        case events.TrialStarted(trial=trial):
            return {
                "trainer": trial.trainer,
                "params": trial.params,
                "preprocessor": trial.chain,
                "scaling": trial.shape.scaling,
                "data": trial.data,
                "seed": trial.seed,
                "repeat_of": trial.repeat_of,
                "enqueued": trial.enqueued,
            }
        case events.AttemptStarted():
            return {"attempt": event.attempt, "places": [asdict(place) for place in event.places]}
        case events.AttemptFailed():
            return {"error": event.error}
        case events.TrialDecided(perturbation=change) if change is not None:
            return {"step": change.donor_step, "params": change.params, "donor": change.donor}
        case events.TrialResized(size=size):
            return {"step": size.step, "workers": size.workers}
        case events.TrialPaused():
            return {"step": event.step}
        case events.TrialEnded(result=result):
            state = result.state.value if result.state is not State.RUNNING else "INTERRUPTED"
            return {"state": state} | {name: getattr(result, name) for name in RESULT_FIELDS}
        case events.ArtifactSaved():
            return {"name": event.name, "characters": len(event.text)}
        case events.SweepEnded(result=ended):
            return {"result": ended.to_json() if ended is not None else None}
    return {}


def json_value(content: Mapping[str, object]) -> dict[str, JsonValue]:
    """Return a mapping as a JSON object.

    NaN and infinity become null, secrets become `***`, and other objects become text.
    """
    values: dict[str, JsonValue] = json.loads(json.dumps(to_json_value(content), default=str))
    return {masked(key): _mask(value) for key, value in values.items()}


def _mask(value: JsonValue) -> JsonValue:
    """Return a value with `***` in place of secrets, at all depths."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {masked(key): _mask(inner) for key, inner in value.items()}
    return [_mask(inner) for inner in value] if isinstance(value, list) else value
