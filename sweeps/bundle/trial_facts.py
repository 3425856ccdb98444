"""The facts of a recorded trial that results, bundles and `sweeps run --json` show."""

from dataclasses import replace

from sweeps.core.trial import Result, format_trial_id
from sweeps.study.study_store import StudyStore

from .manifest import Facts


def describe_recorded(study_store: StudyStore, number: int, step: int | None = None) -> Facts:
    """Return the facts of a recorded trial, as `sweeps run --json` shows the best trial.

    If the sweep has several objectives, the result also has `values`. If the sweep has constraints,
    the result also has `feasible`. If trials are repeated, the result also has `repeats`, and
    `value` is the aggregate of all repeats. A trial that was chosen by another rule than the best
    value has `choice`.

    Args:
        study_store: The study.
        number: Number of the trial.
        step: Step at which to describe the trial; None for the best step. The value of a repeated
            trial, and of a cost, does not depend on the step.
    """
    trial = study_store.trial(number)
    repeats = study_store.space.repeats
    objectives = study_store.objectives
    configurations = study_store.configurations()
    # Results of the trial and its repeats, by trial number
    results = dict(configurations.trials[trial.first_trial])
    result = results[number]
    aggregate = configurations.results()[trial.first_trial]
    if step is not None and step != result.best_step and repeats.count == 1:
        result = aggregate = _result_at(study_store, result, number, step)
    facts: Facts = {
        "trial": trial.id,
        "value": aggregate.value,
        "test": None,
        "metrics": result.metrics,
        "params": trial.params,
        "preprocessor": trial.chain,
        "scaling": trial.shape.scaling,
    }
    if trial.trainer:
        facts["trainer"] = trial.trainer
    if trial.data:
        facts["data"] = trial.data
    if repeats.count > 1:
        values = {format_trial_id(n): r.value for n, r in results.items()}
        facts["repeats"] = {"aggregate": repeats.aggregate, "values": values}
    choice = study_store.choice
    if choice is not None and choice.number == trial.first_trial:
        best = replace(configurations, choice=None).winner(objectives.goals)
        assert best is not None
        facts["choice"] = {
            "rule": choice.rule,
            "best": format_trial_id(best),
            "best_value": study_store.results()[best].value,
            "values": {format_trial_id(n): list(own) for n, own in choice.values.items()},
        }
    if len(objectives.objectives) > 1:
        names = [objective.metric for objective in objectives.objectives]
        facts["values"] = dict(zip(names, aggregate.values, strict=True))
    if objectives.constraints:
        facts["feasible"] = aggregate.feasible
    return facts


def _result_at(study_store: StudyStore, result: Result, number: int, step: int) -> Result:
    """Return the result that the trial would have if it had ended at this step.

    The costs are still the costs of the whole trial.
    """
    state = study_store.states[number]
    score = study_store.objectives.score(
        state.state,
        step,
        curve=[pair for pair in state.curve if pair[0] == step],
        others=state.other_curves,
        cost=state.costs,
        final=state.final,
    )
    return replace(
        result,
        value=score.values[0],
        values=score.values,
        metrics=score.metrics,
        feasible=score.feasible,
    )
