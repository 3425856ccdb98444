"""Write curves and hyperparameters for TensorBoard.

Each trial has a run under `tensorboard/` in the sweep's folder.
"""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.errors import shorten
from sweeps.core.files.safe_names import safe_name
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.installed_package import install_command
from sweeps.core.trial import Report, State, Trial, format_trial_id
from sweeps.study.events import (
    Event,
    SweepStarted,
    TrialDecided,
    TrialEnded,
    TrialPaused,
    TrialReported,
    TrialResized,
    TrialStarted,
)

# Name of an empty file that marks a complete run. It is created when the trial has ended and
# everything is written.
COMPLETE = "complete"
# Characters that UTF-8 cannot encode.
SURROGATES = re.compile("[\ud800-\udfff]")
# Seconds between two writes to the disk.
FLUSH_SECONDS = 10


class TensorBoardTracker:
    """Writes event files that `tensorboard --logdir SWEEP/tensorboard` shows.

    The hyperparameters and the final metrics (HParams) of a run are written when its trial ends.
    After a resume, the tracker removes the runs that are not complete and writes these runs again
    from the start, so no curve has a point twice.
    """

    def __init__(self) -> None:
        try:
            import tensorboard  # noqa: F401
        except ModuleNotFoundError as e:
            raise ModuleNotFoundError(
                f"the package `tensorboard` is not installed; {install_command('tensorboard')}",
                name=e.name,
            ) from None
        self._folder: Path | None = None
        self._objectives: list[str] = []
        self._trials: dict[int, Trial] = {}
        self._writers: dict[int, Any] = {}  # torch's SummaryWriter, which has no types

    def handle(self, event: Event) -> None:
        """Write a trial's metrics when it reports, and its hyperparameters when it ends."""
        if isinstance(event, SweepStarted):
            self._start(event)
        elif isinstance(event, TrialStarted):
            self._trials[event.number] = event.trial
            self._writer(event.number)
        elif isinstance(event, TrialDecided) and event.perturbation is not None:
            change = event.perturbation
            self._trials[event.number] = replace(self._trials[event.number], params=change.params)
            self._add_report(event.number, Report(change.donor_step, change.metrics, event.time))
        elif isinstance(event, TrialResized):
            size = event.size
            self._add_report(event.number, Report(size.step, size.metrics, event.time))
        elif isinstance(event, TrialReported):
            for report in event.reports:
                self._add_report(event.number, report)
        elif isinstance(event, TrialPaused):
            # Each writer needs a thread and an open file, and many trials may be paused.
            if (writer := self._writers.pop(event.number, None)) is not None:
                writer.close()
        elif isinstance(event, TrialEnded):
            self._end(event)

    def close(self) -> None:
        """Close the files of trials that have not ended."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _start(self, event: SweepStarted) -> None:
        """Find the folder of the runs. After a resume, write incomplete runs again."""
        self._folder = SweepFolder(event.folder).tensorboard
        self._objectives = [objective.metric for objective in event.space.objectives]
        if event.history is None:
            return
        complete: set[int] = set()
        for run in self._folder.glob("[0-9]*"):
            if (run / COMPLETE).exists():
                complete.add(int(run.name))
            else:
                shutil.rmtree(run)
        for earlier in event.history(complete):
            self.handle(earlier)

    def _writer(self, number: int) -> Any:
        """Return the writer of a trial's run, which is opened if necessary."""
        from torch.utils import tensorboard

        if number not in self._writers:
            assert self._folder is not None, "SweepStarted comes first"
            summary_writer: Any = tensorboard.SummaryWriter
            self._writers[number] = summary_writer(
                str(self._folder / format_trial_id(number)), flush_secs=FLUSH_SECONDS
            )
        return self._writers[number]

    def _add_report(self, number: int, report: Report) -> None:
        writer = self._writer(number)
        for name, value in report.metrics.items():
            writer.add_scalar(encodable(name), value, report.step, walltime=report.time)

    def _end(self, event: TrialEnded) -> None:
        """Write the hyperparameters and the final metrics, and close the run.

        An interrupted trial may continue in the same run.
        """
        if event.number not in self._trials:
            return
        result = event.result
        writer = self._writer(event.number)
        if result.state is not State.RUNNING:
            names = [f"objective.{name}" for name in self._objectives]
            if len(names) == 1:
                names = ["objective"]
            values = dict(zip(names, result.values or (result.value,), strict=False))
            values |= {f"final/{name}": value for name, value in result.final.items()}
            metrics = {encodable(k): float(v) for k, v in values.items() if v is not None}
            trial = self._trials.pop(event.number)
            writer.add_hparams(hparams_of(trial), metrics, run_name=".")
        folder = Path(writer.get_logdir())
        self._writers.pop(event.number).close()
        if result.state is not State.RUNNING:
            (folder / COMPLETE).touch()


def encodable(name: str) -> str:
    """Return a name that UTF-8 can encode; see `safe_name`."""
    return safe_name(name, SURROGATES)


def hparams_of(trial: Trial) -> dict[str, bool | int | float | str]:
    """Return the values of a trial's dimensions by name, as types that TensorBoard accepts."""
    return {
        encodable(name): value if isinstance(value, bool | int | float) else shorten(str(value))
        for name, value in trial.labels.items()
    }
