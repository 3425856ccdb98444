"""The search of sweeps, on a study in memory."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from benchmarks.search_quality.tasks import STEPS, Axis, Task
from sweeps.core.trial import Action, State
from sweeps.search.plugins import scheduler_of
from sweeps.search.samplers.cell_sampler import CellSampler
from sweeps.search.schedulers.scheduler import all_rungs
from sweeps.search.schedulers.simulated import SimulatedStudy
from sweeps.space import Space, load
from sweeps.study.distributions import suggest
from sweeps.study.event_records import PAUSED

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


def option(number: int) -> str:
    """Return an option of a `choice` as text, because sweeps takes the order of numbers for an
    order of the options.
    """
    return f"option{number}"


def domain(axis: Axis) -> str:
    """Return a dimension in the form of a space file."""
    when = (
        ""
        if axis.when is None
        else f", when: {{params.{axis.when[0]}: {list(map(option, axis.when[1]))}}}"
    )
    if axis.kind == "ordered":
        text = f"choice: {list(axis.options)}"
    elif axis.kind == "choice":
        text = f"choice: {[option(number) for number in range(int(axis.high) + 1)]}"
    elif axis.kind == "int":
        text = f"{'lograndint' if axis.log else 'randint'}: [{int(axis.low)}, {int(axis.high) + 1}]"
    else:
        text = f"{'loguniform' if axis.log else 'uniform'}: [{axis.low!r}, {axis.high!r}]"
    return f"{{{text}{when}}}"


def space_of(
    task: Task, algorithm: str, scheduler: str, seed: int, max_trials: int, objectives: int = 1
) -> Space:
    """Return the space file that searches a task.

    In the scheduler, `max_t: 27` is replaced by the task's number of steps.
    """
    goals = ", ".join(
        f"{{metric: {metric}, goal: minimize}}"
        for metric in ("value", "other", "third")[:objectives]
    )
    params = "\n".join(f"    {name}: {domain(axis)}" for name, axis in task.axes.items())
    text = f"""\
name: replay
trainer: {{loop: "benchmarks.search_quality.replay:replay", backend: none}}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: [{goals}]
search: {{algorithm: {algorithm}, seed: {seed}}}
scheduler: {scheduler.replace(f"max_t: {STEPS}", f"max_t: {task.steps}")}
limits: {{max_trials: {max_trials}}}
space:
  params:
{params}
"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "replay.yaml"
        file.write_text(text)
        return load(file)


class Ours:
    """Searcher that makes the decisions of sweeps, in the same way as its search loop."""

    def __init__(
        self,
        task: Task,
        seed: int,
        algorithm: str,
        scheduler: str = f"{{name: asha, max_t: {STEPS}}}",
        max_trials: int = 100_000,
        objectives: int = 1,
    ):
        self.space = space_of(task, algorithm, scheduler, seed, max_trials, objectives)
        self.choices = [name for name, axis in task.axes.items() if axis.kind == "choice"]
        self.scheduler = scheduler_of(self.space.scheduler)
        self.sampler = CellSampler(self.space)
        self.study = optuna.create_study(directions=["minimize"] * objectives, sampler=self.sampler)
        self.trials: dict[int, optuna.Trial] = {}
        self.rungs = all_rungs(self.scheduler)
        self.view = SimulatedStudy(seed)

    def begin(self) -> tuple[int, dict[str, Any]]:
        paused = self.scheduler.next_paused(self.view)
        if paused is not None:
            self.view.resume(paused)
            self.trials[paused].set_user_attr(PAUSED, None)
            return paused, {}
        number = len(self.study._storage.get_all_trials(self.study._study_id, deepcopy=False))
        self.sampler.begin({}, number, number)
        trial = self.study.ask()
        self.trials[trial.number] = trial
        bracket = self.scheduler.bracket(self.space.search.seed, trial.number)
        self.view.start(trial.number, bracket)

        def choose(dimension: Any) -> Any:
            return suggest(trial, dimension)

        params = self.space.fill(choose)["params"]
        return trial.number, params | {
            name: int(params[name].removeprefix("option"))
            for name in self.choices
            if name in params
        }

    def report(self, trial: int, step: int, value: float) -> bool:
        self.view.report(trial, {step: value})
        if step not in self.rungs:
            return True
        self.trials[trial].report(value, step)
        if step not in self.scheduler.rungs(self.view.trials[trial].bracket):
            return True
        action = self.scheduler.decide(self.view, trial, step).action
        if action is Action.STOP:
            self.view.end(trial)
            self.study.tell(self.trials.pop(trial), state=TrialState.PRUNED)
        elif action is Action.PAUSE:
            self.view.pause(trial, step)
            self.trials[trial].set_user_attr(PAUSED, step)
        return action is Action.CONTINUE

    def fail(self, trial: int) -> None:
        self.view.end(trial, State.FAIL)
        self.study.tell(self.trials.pop(trial), state=TrialState.FAIL)

    def end(self, trial: int, *others: float) -> None:
        self.view.end(trial)
        self.study.tell(
            self.trials.pop(trial), [min(self.view.trials[trial].values.values()), *others]
        )
