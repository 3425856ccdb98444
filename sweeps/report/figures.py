"""The figures of a report: what they are, which trials and values they show, and the process that draws them (`plots`)."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.study.record import TrialRecord

log = logging.getLogger(__name__)

SECONDS = 60.0
# With fewer trials than this at a step, importances say little, and those of an earlier step with more trials say more.
ENOUGH = 30


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Attributes:
        title: above it.
        image: an `<svg>` or `<img>` element; "" if it could not be drawn.
        note: below it: what it shows, or why it is not there.
    """

    title: str
    image: str
    note: str = ""


@dataclass(frozen=True)
class Drawn:
    """All that was drawn.

    Attributes:
        figures: in the order of the report.
        importances: of each dimension, summing to 1, the greatest first; empty where they cannot be known.
        basis: which values the importances are of.
    """

    figures: tuple[Figure, ...] = ()
    importances: tuple[tuple[str, float], ...] = ()
    basis: str = ""


class Drawing:
    """A process that draws a sweep's figures, while something else is done.

    A process, since Optuna draws by `pyplot`, whose style and figures belong to the whole process, and the user's is not ours to
    change; it takes some seconds, which pass while the winner is exported; and one that hangs cannot hold a sweep.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None):
        house = str(Path(__file__).parents[1])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [house, os.environ.get("PYTHONPATH")])), "MPLBACKEND": "agg"}
        env |= environment or {}  # what it needs to read the study
        # files, not pipes: it comes to its end even if nobody asks for the result
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `result`
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # a session of its own: a Ctrl-C in the terminal is meant for the sweep, which finishes its report
        command = [sys.executable, "-m", "sweeps.report.plots", str(folder.resolve())]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, start_new_session=True
        )

    def result(self, timeout: float = SECONDS) -> Drawn:
        """What it drew; one figure that says so if it failed or took longer than `timeout` seconds. To be asked once."""
        try:
            if code := self._process.wait(timeout):
                said = _read(self._err).strip().splitlines()
                raise RuntimeError(said[-1] if said else f"exit code {code}")
            return decoded(_read(self._out))
        except (subprocess.TimeoutExpired, RuntimeError, ValueError) as e:
            self._process.kill()
            self._process.wait()
            log.warning("no figures in the report: %s", e)
            return Drawn((Figure("Figures", "", f"None could be drawn: {e}"),))
        finally:
            self._out.close()
            self._err.close()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def encoded(drawn: Drawn) -> str:
    return json.dumps(dataclasses.asdict(drawn))


def decoded(text: str) -> Drawn:
    """What `encoded` wrote."""
    raw = json.loads(text)
    return Drawn(tuple(Figure(**f) for f in raw["figures"]), tuple((n, v) for n, v in raw["importances"]), raw["basis"])


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Names without `params.` and `scaling.`, where they stay different.

    >>> short_names(["preprocessor", "scaling.num_workers", "params.eta"])
    {'preprocessor': 'preprocessor', 'scaling.num_workers': 'num_workers', 'params.eta': 'eta'}
    """
    cut = {name: name.removeprefix("params.").removeprefix("scaling.") for name in names}
    shorts = list(cut.values())
    return {name: short if shorts.count(short) == 1 else name for name, short in cut.items()}


def basis_of(trials: Sequence[TrialRecord], rungs: Sequence[int]) -> tuple[str, dict[int, float]]:
    """Values that can be compared: of equal steps, from as many trials as there can be.

    A trial that was stopped early is no worse for its configuration alone. So the values are those at the highest rung that enough
    trials reached, or at the lowest one; without rungs, the trials' own.

    Args:
        trials: of the sweep.
        rungs: the steps at which trials were stopped, rising; empty if nothing stopped them.

    Returns:
        Which values these are, and the values by trial number; all finite.
    """
    reached = {step for t in trials for step, _ in t.curve if step in rungs}
    for rung in sorted(reached, reverse=True):
        values = {t.number: value for t in trials for step, value in t.curve if step == rung and math.isfinite(value)}
        if len(values) >= ENOUGH or (rung == min(reached) and values):
            return f"the values at step {rung}, which {len(values)} trials reached", values
    values = {t.number: t.result.value for t in trials if t.result.value is not None and math.isfinite(t.result.value)}
    return f"the values of {len(values)} trials", values


def thin(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most so many points of a curve, its ends among them; finite ones only."""
    kept = [(step, value) for step, value in points if math.isfinite(value)]
    if len(kept) <= most:
        return kept
    return [kept[round(i * (len(kept) - 1) / (most - 1))] for i in range(most)]


def best_first(trials: Sequence[TrialRecord], minimize: bool) -> list[TrialRecord]:
    """Those that have a finite value, the best first."""
    valued = [(t.result.value, t) for t in trials if t.result.value is not None and math.isfinite(t.result.value)]
    return [t for _, t in sorted(valued, key=lambda pair: (pair[0] if minimize else -pair[0], pair[1].number))]
