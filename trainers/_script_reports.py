"""Reports of a user's script, and the source whose reports count."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeps.core.loop_context import UNREADABLE_LINE
from sweeps.core.plugins.command_template import named_values

# The sources of reports. A source counts only if no source before it has reports.
CALL = "sweeps.report"
LINE = "JSON lines on standard output"
MLFLOW = "MLflow"
SOURCES = (CALL, LINE, MLFLOW)


@dataclass(frozen=True)
class ScriptReport:
    """A report of the script.

    Attributes:
        source: One of `SOURCES`.
        metrics: The reported values, which may be nested.
        checkpoint: Folder to copy, which the call of `sweeps.report` named; None without such a
            folder.
        saves: True to copy the checkpoint folder if its files have changed since the last copy.
        done: Function to call when the report is recorded. The script then continues.
    """

    source: str
    metrics: Mapping[str, Any]
    checkpoint: Path | None = None
    saves: bool = False
    done: Callable[[], None] = lambda: None

    @property
    def is_readable(self) -> bool:
        """False if the report stands for a line that cannot be read."""
        return UNREADABLE_LINE not in self.metrics


class Sources:
    """Choose the source whose reports count.

    A script may print and log the same metrics that it passes to `sweeps.report`.

    The first readable report of a source other than `sweeps.report` is held back until the source
    has a second readable report, because a better source may follow.

    Attributes:
        chosen: The source whose reports count; None until it is known.
    """

    def __init__(self) -> None:
        self.chosen: str | None = None
        self._held: list[ScriptReport] = []

    def add(self, report: ScriptReport) -> list[ScriptReport]:
        """Return the reports that count now, the oldest first.

        Raises:
            ValueError: The script calls `sweeps.report`, but reports of another source have counted
                already.
        """
        if self.chosen is None:
            self._held.append(report)
            held = self._of_best_source()
            if report.source != CALL and sum(other.is_readable for other in held) < 2:
                return []
            self.chosen = report.source
            self._held = []
            # Only the latest report may copy the checkpoint folder, which belongs to its step.
            return [*(replace(earlier, saves=False) for earlier in held[:-1]), report]
        if report.source == CALL and self.chosen != CALL:
            raise ValueError(
                f"the script calls sweeps.report, but its {self.chosen} with the objective's "
                "metric already count as reports; "
                "call sweeps.report from the first step on, or never"
            )
        return [report] if report.source == self.chosen else []

    def end(self) -> list[ScriptReport]:
        """Return the reports that were held back. Call this method when the script has ended."""
        held = self._of_best_source()
        self._held = []
        return held

    def _of_best_source(self) -> list[ScriptReport]:
        """Return the reports of the best source that are held back.

        A source without a readable report does not count.
        """
        sources = (report.source for report in self._held if report.is_readable)
        best = min(sources, key=SOURCES.index, default=None)
        return [report for report in self._held if report.source == best]


def metrics_in(line: bytes, metric: str | None) -> dict[str, Any] | None:
    """Return the metrics in a line of output; None if the line is no report.

    A report is a JSON object that has a number for the objective's metric, perhaps in a nested
    object.

    Args:
        line: The line.
        metric: The objective's metric; None if no line is a report.

    >>> metrics_in(b'{"loss": 0.5, "epoch": 3}', "loss")
    {'loss': 0.5, 'epoch': 3}
    """
    value = _json_object(line)
    is_report = metric is not None and _is_number(named_values(value).get(metric))
    return value if is_report else None


def names_metric(line: bytes, metric: str) -> bool:
    """Return whether a line with a JSON object has an entry for the objective's metric.

    The object may be damaged.

    >>> names_metric(b'{"loss": "0.5"}', "loss"), names_metric(b"{'loss': 0.5", "loss")
    (True, True)
    """
    if value := _json_object(line):
        return metric in named_values(value)
    names = (f'"{name}"'.encode() for name in metric.split("."))
    return all(name in line.replace(b"'", b'"') for name in names)


def number_names_in(line: bytes) -> list[str]:
    """Return the names of the numbers in a line of output that is a JSON object.

    [] for any other line.

    >>> number_names_in(b'{"epoch": 3, "valid": {"loss": 0.5}, "note": "x"}')
    ['epoch', 'valid.loss']
    """
    return [name for name, value in named_values(_json_object(line)).items() if _is_number(value)]


def _json_object(line: bytes) -> dict[str, Any]:
    """Return the values of a line that is a JSON object, by name; {} for any other line."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line)
        if isinstance(value, dict):
            return value
    return {}


def _is_number(value: object) -> bool:
    """Return whether a value is a number.

    NaN is a number here: a trial whose loss is NaN has reported it.
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool)
