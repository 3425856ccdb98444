"""Parameters of the fitted kernels.

They are recorded in the study, so that a resumed sweep continues with the same kernels.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from optuna import Study

if TYPE_CHECKING:
    from .gaussian_process import Process

# A kernel is fitted again when the number of values has grown by this factor since the last fit.
GROWTH = 1.05
# System attribute of a trial for which kernels were fitted. It maps the name of a process to
# (number of values, parameters of the kernel).
FITTED = "gp:kernels"


class FittedKernels:
    """Latest parameters of the kernel of each process, by the name of the process."""

    def __init__(self) -> None:
        self._fitted: dict[str, tuple[int, list[float]]] | None = None
        self._new: dict[str, tuple[int, list[float]]] = {}

    def condition(self, process: Process, name: str, study: Study, count: int) -> None:
        """Condition a process on its observations.

        If there are enough new values, its kernel is fitted first.

        Args:
            process: The process.
            name: Name of the process.
            study: The study in which earlier fits are recorded.
            count: Number of values now.
        """
        if self._fitted is None:
            self._fitted = {}
            for trial in study.get_trials(deepcopy=False):
                if text := trial.system_attrs.get(FITTED):
                    self._fitted |= json.loads(text)
        last = self._fitted.get(name)
        if last is None or count >= GROWTH * last[0]:
            start = np.array(last[1]) if last else process.start
            last = (count, [round(float(value), 4) for value in process.fit(start)])
            self._fitted[name] = self._new[name] = last
        process.condition(np.array(last[1]))

    def record(self, study: Study, number: int) -> None:
        """Record the fits since the last call as a system attribute of trial `number`."""
        if self._new:
            trial_id = study.get_trials(deepcopy=False)[number]._trial_id
            study._storage.set_trial_system_attr(trial_id, FITTED, json.dumps(self._new))
            self._new = {}
