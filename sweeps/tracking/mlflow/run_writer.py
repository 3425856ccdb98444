"""Write the events of a sweep into its runs in MLflow."""

import functools
from collections.abc import Sequence

from sweeps.core.errors import make_encodable
from sweeps.core.files.origin import valid_origin_keys
from sweeps.core.resources import COSTS
from sweeps.core.trial import Result, State, Trial
from sweeps.space import Space
from sweeps.space.model.settings_texts import settings_of
from sweeps.study import events

from . import run_contents
from .run_contents import legal_name
from .sweep_runs import RequestBatch, SweepRuns

STATUS = {
    State.COMPLETE: "FINISHED",
    State.PRUNED: "FINISHED",
    State.FAIL: "FAILED",
    State.RUNNING: "KILLED",
}


def is_kept(step: int) -> bool:
    """Return whether MLflow gets the report of a step.

    MLflow gets every step below 1,000, then every tenth, from 10,000 on every hundredth, and so on.

    >>> [step for step in range(998, 1031) if is_kept(step)]
    [998, 999, 1000, 1010, 1020, 1030]
    """
    return len(str(step).rstrip("0")) <= 3  # significant digits


class RunWriter(SweepRuns):
    """Writes events into the runs of one sweep."""

    _space: Space | None = None  # known after `SweepStarted`

    def write(self, new_events: Sequence[events.Event]) -> None:
        """Write events. After an error, call `open` before you write the same events again."""
        batch = RequestBatch()
        for event in new_events:
            self._add(event, batch)
            if isinstance(event, events.SweepStarted) and event.history is not None:
                for earlier in self._read_history(event.history):
                    self._add(earlier, batch)
        self.send(batch)

    def _read_history(self, history: events.History) -> Sequence[events.Event]:
        """Return the events of the trials of earlier drivers that MLflow may have missed."""
        try:
            return list(history(self.complete))
        except Exception as e:  # The study's database may be unreachable for a while.
            raise ConnectionError(f"the study cannot be read: {e}") from e

    @functools.singledispatchmethod
    def _add(self, event: events.Event, batch: RequestBatch) -> None:
        """Add the requests for one event to a batch.

        For event types that are not registered below, add nothing.
        """

    @_add.register
    def _(self, event: events.SweepStarted, batch: RequestBatch) -> None:
        space = self._space = event.space
        parent = self.parent
        tags = {
            "sweeps.data_fingerprint": event.fingerprint,
            "sweeps.space": space.public(space.text),
            "sweeps.dir": str(event.folder),
        }
        if learned_from := valid_origin_keys(event.folder).get("learned_from"):
            tags["sweeps.learned_from"] = "\n".join(learned_from)
        if event.git_commit is not None and event.git_dirty is not None:
            tags |= {
                "mlflow.source.git.commit": event.git_commit,
                "sweeps.git_dirty": event.git_dirty,
            }
        batch.tags[parent] |= tags
        # MLflow refuses to change parameters that an earlier driver logged
        existing = self.client.get_run(parent).data.params
        params = {legal_name(name): value for name, value in settings_of(space).items()}
        for name in sorted(params.keys() - existing.keys()):
            batch.params[parent][name] = params[name]
        text = make_encodable(space.public(space.text))
        self.permit(self.client.log_text, parent, text, "space.yaml")
        if inputs := run_contents.datasets(space, event.fingerprint):
            self.permit(self.client.log_inputs, parent, inputs)

    @_add.register
    def _(self, event: events.TrialStarted, batch: RequestBatch) -> None:
        trial = event.trial
        continues = trial.number in self.runs
        run = self.trial_run(trial, event.time)
        if continues:
            self.permit(self.client.update_run, run, "RUNNING")
            batch.tags[run]["sweeps.state"] = State.RUNNING.value
            batch.statuses.pop(run, None)  # a pause has ended
        params = run_contents.trial_params(trial)
        batch.params[run] |= {legal_name(name): value for name, value in params.items()}
        if trial.lineage:
            batch.tags[run]["sweeps.pbt"] = trial.lineage
        batch.started.append(trial)

    @_add.register
    def _(self, event: events.TrialReported, batch: RequestBatch) -> None:
        for report in event.reports:
            if is_kept(report.step):
                run = self.runs[event.number]
                batch.add_metrics(run, report.metrics.items(), report.time, report.step)

    @_add.register
    def _(self, event: events.TrialDecided, batch: RequestBatch) -> None:
        if (change := event.perturbation) is None:
            return
        run = self.runs[event.number]
        batch.add_metrics(run, change.metrics.items(), event.time, change.donor_step)
        batch.tags[run]["sweeps.pbt"] = event.lineage

    @_add.register
    def _(self, event: events.TrialResized, batch: RequestBatch) -> None:
        run = self.runs[event.number]
        size = event.size
        batch.add_metrics(run, size.metrics.items(), event.time, size.step)

    @_add.register
    def _(self, event: events.TrialPaused, batch: RequestBatch) -> None:
        run = self.runs[event.number]
        batch.tags[run]["sweeps.state"] = "PAUSED"
        batch.statuses[run] = ("SCHEDULED", int(event.time * 1000))

    @_add.register
    def _(self, event: events.TrialEnded, batch: RequestBatch) -> None:
        run = self.runs[event.number]
        result = event.result
        tags = batch.tags[run]
        interrupted = result.state is State.RUNNING
        tags["sweeps.state"] = "INTERRUPTED" if interrupted else result.state.value
        if self._space is not None and self._space.constraints:
            tags["sweeps.feasible"] = str(result.feasible).lower()
        if result.reason:
            tags["sweeps.reason"] = result.reason
        if result.error:
            tags["sweeps.error"] = result.error
        if not interrupted:  # an interrupted trial may continue, and metrics cannot be removed
            batch.add_metrics(run, self._final_metrics(result).items(), event.time)
            batch.ended.append(event.number)
        batch.statuses[run] = (STATUS[result.state], int(event.time * 1000))

    def _final_metrics(self, result: Result) -> dict[str, float | None]:
        """Return the final metrics of an ended trial."""
        metrics: dict[str, float | None] = {
            "objective": result.value,
            "steps": result.steps,
            "seconds": result.seconds,
        }
        metrics |= {name: result.metrics[name] for name in COSTS if name in result.metrics}
        if self._space is not None and len(self._space.objectives) > 1:
            pairs = zip(self._space.objectives, result.values, strict=False)
            metrics |= {f"objective.{objective.metric}": value for objective, value in pairs}
        return metrics | {f"final/{name}": value for name, value in result.final.items()}

    @_add.register
    def _(self, event: events.ArtifactSaved, batch: RequestBatch) -> None:
        text = make_encodable(event.text)
        self.permit(self.client.log_text, self.parent, text, event.name)

    @_add.register
    def _(self, event: events.SweepEnded, batch: RequestBatch) -> None:
        parent = self.parent
        result = event.result
        if result is not None:
            front = {int(best["trial"]) for best in result.front}
            for number in sorted(self.runs.keys() & (front | self.front)):
                batch.tags[self.runs[number]]["sweeps.front"] = str(number in front).lower()
            batch.tags[parent] |= run_contents.sweep_tags(result)
            batch.add_metrics(parent, run_contents.sweep_metrics(result).items(), event.time)
        if event.report:
            batch.tags[parent] |= self._report_tags(event.report, event.best)
        batch.statuses[parent] = (run_contents.sweep_status(result), int(event.time * 1000))

    def _report_tags(self, markdown: str, best: Trial | None) -> dict[str, str]:
        """Return the parent run's description, and the tag with the run of the best trial."""
        experiment = self.experiment_id
        assert self._space is not None, "`SweepStarted` comes first"
        links = {
            "All trials, best first": run_contents.trials_link(
                experiment,
                self.destination.sweep,
                ascending=self._space.objective.goal == "minimize",
            ),
            "Report with figures": run_contents.run_link(experiment, self.parent, "report.html"),
            "Space file": run_contents.run_link(experiment, self.parent, "space.yaml"),
        }
        tags = {}
        if best is not None and best.number in self.runs:
            run = self.runs[best.number]
            links = {f"Trial {best.id}": run_contents.run_link(experiment, run), **links}
            tags["sweeps.best_run"] = run
        return {**tags, run_contents.NOTE: run_contents.description(markdown, links)}
