"""The figures of a report: choose the trials and the values to show, and start the process that draws the figures (see `plots`)."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.study.record import TrialRecord

log = logging.getLogger(__name__)

# Time limit for drawing the figures, in seconds.
SECONDS = 60.0
# Smallest number of trials for importances at a rung. If fewer trials reached a rung, the values at an earlier rung are more informative.
MIN_TRIALS = 30


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Attributes:
        title: The title above the figure.
        image: An `<svg>` or `<img>` element; "" if the figure could not be drawn.
        note: The caption, which describes the figure or gives the reason why the figure is missing.
    """

    title: str
    image: str
    note: str = ""


@dataclass(frozen=True)
class Drawn:
    """The figures of a sweep, and the importances of its dimensions.

    Attributes:
        figures: The figures, in the order of the report.
        importances: (name, importance) of each dimension, the largest importance first. The importances add up to 1. Empty if the
            importances are unknown.
        basis: Description of the values from which the importances were computed, such as "the values at step 9, which 40 trials reached".
    """

    figures: tuple[Figure, ...] = ()
    importances: tuple[tuple[str, float], ...] = ()
    basis: str = ""


class Drawing:
    """Process that draws a sweep's figures in the background.

    A separate process is used for three reasons. Optuna draws with `pyplot`, which changes global variables of the process. Drawing takes
    some seconds, and the sweep can export the best trial meanwhile. If the drawing hangs, the process can be killed.

    Args:
        folder: The sweep's folder.
        environment: Additional environment variables that the process needs to read the study, such as a database password.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None):
        root = str(Path(__file__).parents[1])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])), "MPLBACKEND": "agg"}
        env |= environment or {}
        command = [sys.executable, "-m", "sweeps.sweep_report.plots", str(folder.resolve())]
        # The process gets a session of its own, so that Ctrl-C in the terminal does not end the process.
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def result(self, timeout: float = SECONDS) -> Drawn:
        """Wait for the process, and return the figures. Call this method only once.

        If the process fails, or does not end within `timeout` seconds, the result is one figure without an image. Its caption gives the
        reason.
        """
        with self._process as process:
            try:
                out, err = process.communicate(timeout=timeout)
                if process.returncode:
                    raise RuntimeError((err.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
                return decoded(out)
            except (subprocess.TimeoutExpired, RuntimeError, ValueError) as e:
                process.kill()
                log.warning("no figures in the report: %s", e)
                return Drawn((Figure("Figures", "", f"The figures could not be drawn: {e}"),))


def encoded(drawn: Drawn) -> str:
    """Return the figures and the importances as JSON text."""
    return json.dumps(dataclasses.asdict(drawn))


def decoded(text: str) -> Drawn:
    """Return the figures and the importances from the JSON text that `encoded` returned."""
    raw = json.loads(text)
    return Drawn(tuple(Figure(**f) for f in raw["figures"]), tuple((n, v) for n, v in raw["importances"]), raw["basis"])


def basis_of(trials: Sequence[TrialRecord], rungs: Sequence[int]) -> tuple[str, dict[int, float]]:
    """Return comparable values of the trials: values at the same step.

    The best values of the trials are not comparable, because a trial that was stopped early had fewer steps. The values are therefore taken
    at the highest rung at which at least `MIN_TRIALS` trials have a finite value. If there is no such rung, the lowest rung that any trial
    reached is used. If no trial has a finite value there either, the best values of the trials are returned.

    Args:
        trials: The trials of the sweep.
        rungs: The steps at which the scheduler compares trials, in ascending order; empty if there are no such steps.

    Returns:
        (description, values). The description is a short text, such as "the values at step 9, which 40 trials reached". `values` maps trial
        numbers to these values. Trials without such a value are left out. All values are finite.
    """
    reached = {step for t in trials for step, _ in t.curve if step in rungs}
    for rung in sorted(reached, reverse=True):
        values = {t.number: value for t in trials for step, value in t.curve if step == rung and math.isfinite(value)}
        if len(values) >= MIN_TRIALS or (rung == min(reached) and values):
            return f"the values at step {rung}, which {len(values)} trials reached", values
    values = {t.number: t.result.value for t in trials if t.result.value is not None and math.isfinite(t.result.value)}
    return f"the values of {len(values)} trials", values


def thin(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Return at most `most` points of a curve, spread evenly. Points whose value is not finite are left out first.

    The first and the last of the remaining points are always kept.
    """
    kept = [(step, value) for step, value in points if math.isfinite(value)]
    if len(kept) <= most:
        return kept
    return [kept[round(i * (len(kept) - 1) / (most - 1))] for i in range(most)]


def best_first(trials: Sequence[TrialRecord], minimize: bool) -> list[TrialRecord]:
    """Return the trials with a finite value, the best first."""
    valued = [(t.result.value, t) for t in trials if t.result.value is not None and math.isfinite(t.result.value)]
    return [t for _, t in sorted(valued, key=lambda pair: (pair[0] if minimize else -pair[0], pair[1].number))]
