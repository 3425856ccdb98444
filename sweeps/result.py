"""What a sweep came to."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """The same as JSON can say it, which knows neither NaN nor infinity: None in their place."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def here(shown: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What `SweepResult.to_json` gave, as it is now in a folder that may have been moved since, and its bundle or checkpoint deleted."""
    there = {key: folder / Path(shown[key]).name for key in ("bundle", "checkpoint") if shown.get(key)}
    return {**shown, "dir": str(folder), **{key: str(path) if path.exists() else None for key, path in there.items()}}


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        sweep, dir: its name and folder.
        trials: `completed`, `pruned`, `failed`, and `interrupted` where there are any.
        best: `trial`, `value`, `test`, `params`, `preprocessor`, `scaling`, and `data` where it is tuned; None if no trial has a value.
        front: with several objectives, in place of `best`: the trials that no other dominates, each like `best`, with `values` by metric.
        bundle: the exported folder; None if the trainer has no `load` or the sweep no winner.
        checkpoint: the winner's checkpoint, exported where there is no `load`.
        mlflow: `tracking_uri`, `experiment`, `parent_run`; `missed`: True if the server did not get everything,
            and then `ended`, when the search did, in seconds since the epoch.
        fits: distinct preprocessing chains fitted.
        seconds: wall time.
        reason: why the sweep ended before its last trial; None if it did not.
        notes: what the user should know besides, a line each.
        freed: where checkpoints are bounded, what this driver of the sweep has deleted: `checkpoints`, of how many `trials`, `bytes`; and
            the bytes that are `left`.
    """

    sweep: str
    dir: Path
    trials: dict[str, int]
    best: dict[str, Any] | None
    bundle: Path | None
    checkpoint: Path | None
    mlflow: dict[str, Any]
    fits: int
    seconds: float
    reason: str | None = None
    notes: tuple[str, ...] = ()
    front: tuple[dict[str, Any], ...] = ()
    freed: dict[str, int] | None = None

    def noting(self, note: str) -> SweepResult:
        """With one more note."""
        return dataclasses.replace(self, notes=(*self.notes, note))

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints; null for a number that JSON has not."""
        shown = dataclasses.asdict(self)
        shown["dir"] = str(self.dir)
        for key in ("bundle", "checkpoint"):
            shown[key] = str(shown[key]) if shown[key] else None
        for key in ("checkpoint", "reason", "notes", "front", "freed"):
            if not shown[key]:
                del shown[key]
        return plain(shown)

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> SweepResult:
        """What `to_json` gave."""
        paths = {key: Path(shown[key]) if shown.get(key) else None for key in ("bundle", "checkpoint")}
        return cls(**{**shown, **paths, "dir": Path(shown["dir"]), "notes": tuple(shown.get("notes", ()))})

    def as_text(self) -> str:
        """`to_json` as a file's text."""
        return json.dumps(self.to_json(), indent=2, default=str, allow_nan=False) + "\n"
