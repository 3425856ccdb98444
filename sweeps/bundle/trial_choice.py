"""Choose the trials to export, and find the models that they have saved."""

from dataclasses import dataclass

from sweeps.core.errors import InputError, join_first, unknown_trial
from sweeps.core.files.checkpoint_files import checkpoint_exists, checkpoint_place
from sweeps.core.trial import complete_trial_id, format_trial_id
from sweeps.space.python.saved_space import how_to_get_a_bundle
from sweeps.study.study_store import StudyStore


@dataclass(frozen=True)
class SavedModel:
    """A model that a trial has saved.

    Attributes:
        number: Number of the trial.
        source: Path or address of the checkpoint.
        step: Step of the model.
    """

    number: int
    source: str
    step: int

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return format_trial_id(self.number)


def saved_model(study_store: StudyStore, number: int, latest: bool = False) -> SavedModel | None:
    """Return the model that an export of a trial contains.

    Return None if the trial reported no checkpoint, or if the checkpoint was deleted.

    Args:
        study_store: The study.
        number: Number of the trial.
        latest: True for the trial's latest checkpoint instead of the checkpoint of its best step.
    """
    state = study_store.states[number]
    checkpoint = state.checkpoint if latest else state.best
    if checkpoint is None:
        return None
    source = checkpoint_place(study_store.folder, state.id, checkpoint.name)
    if not checkpoint_exists(source):
        return None
    # Every checkpoint, also the latest one, holds the model of its `best_step`.
    return SavedModel(number, source, checkpoint.best_step)


def why_not_saved(study_store: StudyStore, number: int, latest: bool) -> str:
    """Return why a trial without a saved model cannot be exported, and what to do."""
    state = study_store.states[number]
    cannot = f"trial {state.id} cannot be exported, because"
    if (state.checkpoint if latest else state.best) is not None:
        deleted = "latest checkpoint" if latest else "checkpoint"
        return f"{cannot} its {deleted} was deleted"
    others = [model for n in study_store.states if (model := saved_model(study_store, n, latest))]
    if others:
        listed = join_first([model.trial_id for model in others], 8)
        return f"{cannot} it reported no checkpoint; trials with a checkpoint: {listed}"
    trainer = study_store.space.trainer_of(state.trial.labels)
    next_step = how_to_get_a_bundle(trainer)
    return f"{cannot} it reported no checkpoint" + (f"; {next_step}" if next_step else "")


def find_trial_number(study_store: StudyStore, trial_id: str | None) -> int:
    """Return the number of the trial with the given ID.

    If the ID is None, return the number of the best trial.

    Raises:
        InputError: The sweep has no trial with this ID. If the ID is None: the sweep has several
            objectives, or no complete trial has a value.
    """
    results = study_store.results()
    if trial_id is not None:
        known = {format_trial_id(n): n for n in results}
        if (name := complete_trial_id(trial_id)) not in known:
            raise unknown_trial("--trial", trial_id, known)
        return known[name]
    if len(study_store.objectives.objectives) > 1:
        front = ", ".join(map(format_trial_id, study_store.front())) or "nothing"
        raise InputError(
            "--trial",
            "is required, because the sweep has several objectives; give the id of a trial, or "
            f"use --pareto for the Pareto front: {front}",
        )
    best = study_store.winner()
    if best is None:
        saved = [format_trial_id(n) for n, r in results.items() if r.checkpoint is not None]
        text = "this sweep has no completed trial with a value of the objective"
        if saved:
            names = join_first(saved, 8)
            text += f"; use --trial with the id of a trial that has a checkpoint: {names}"
        raise InputError("export", text)
    return best


def best_numbers(study_store: StudyStore, count: int, latest: bool) -> list[int]:
    """Return the numbers of the best trials that have a checkpoint, best first.

    Args:
        study_store: The study.
        count: Largest number of trials to return.
        latest: See `saved_model`.

    Raises:
        InputError: No complete trial has both a value and the required checkpoint.
    """
    numbers = [n for n in study_store.ranked() if saved_model(study_store, n, latest) is not None]
    if not numbers:
        checkpoint = "its latest checkpoint" if latest else "a checkpoint"
        raise InputError(
            "--top",
            f"this sweep has no completed trial with a value of the objective and {checkpoint}",
        )
    return numbers[:count]


def front_numbers(study_store: StudyStore, latest: bool) -> list[int]:
    """Return the numbers of the trials on the Pareto front.

    Args:
        study_store: The study.
        latest: See `saved_model`.

    Raises:
        InputError: The sweep has only one objective, no complete trial has a value of every
            objective, or a trial of the front does not have the required checkpoint.
    """
    front = study_store.front()
    missing = [format_trial_id(n) for n in front if saved_model(study_store, n, latest) is None]
    if len(study_store.objectives.objectives) == 1:
        metric = study_store.objectives.objectives[0].metric
        problem = f"needs several objectives, but this sweep has only one, `{metric}`"
        problem += "; use --top K instead"
    elif not front:
        problem = "this sweep has no completed trial with a value of every objective"
    elif missing:
        checkpoint = "latest checkpoint" if latest else "checkpoint"
        problem = f"the {checkpoint} of trial {', '.join(missing)} is missing"
        problem += "; use --trial to export another trial"
    else:
        return front
    raise InputError("--pareto", problem)
