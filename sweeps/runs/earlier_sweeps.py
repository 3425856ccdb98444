"""Read the earlier sweeps from which a new sweep learns (`search.from`).

Nothing is written, and no code of these sweeps runs.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from optuna.trial import FrozenTrial
from pydantic import JsonValue

from sweeps.core.errors import InputError, Problem
from sweeps.core.files.stores import recorded_store
from sweeps.core.trial import Trial
from sweeps.data.checks.preflight import locate_problems
from sweeps.search.earlier_configurations import OutsideDomain, translate
from sweeps.search.earlier_trials import EarlierSweep, EarlierTrial
from sweeps.search.samplers.configuration_view import ByConfiguration
from sweeps.space import Objective, Space
from sweeps.space.model.conditions import Key
from sweeps.space.python.saved_space import recorded_space
from sweeps.space.sections.search_models import Repeats
from sweeps.stored.stored_sweeps import open_copy
from sweeps.study import record_reader
from sweeps.study.event_records import OBJECTIVES_ATTRIBUTE, state_of
from sweeps.study.journal_rules import UNREADABLE
from sweeps.study.objectives import Objectives

NO_VALUE = "without a value"
OTHER_TRAINER = "of another trainer"
UNREADABLE_TRIAL = "that cannot be read"
# Larger values are not used. The violation of a constraint whose metric is unknown is infinite, and
# becomes this number.
LARGEST = 1e299


def read_earlier_sweeps(space: Space, root: str | Path) -> tuple[EarlierSweep, ...]:
    """Return the trials of the sweeps that `search.from` names, in the dimensions of a space.

    Args:
        space: The space of the new sweep.
        root: Root folder or address of all sweeps.

    Raises:
        InputError: A sweep does not exist, is named twice, has another objective, or has no trial
            from which the new sweep can learn.
    """
    sweeps: list[EarlierSweep] = []
    problems: list[Problem] = []
    for i, sweep in enumerate(space.search.earlier):
        place = f"search.from.{i}"
        try:
            with open_copy(sweep, root) as (folder, _):
                earlier = _read(folder, space)
            if any(earlier.place == other.place for other in sweeps):
                raise InputError(
                    "",
                    f"`{sweep}` is the sweep {earlier.name}, which is named twice; name each "
                    "sweep once",
                )
            sweeps.append(earlier)
        except InputError as e:
            problems += [
                Problem(place, f"{p.place}: {p.text}" if p.place else p.text) for p in e.problems
            ]
        except UNREADABLE as e:
            problems.append(
                Problem(
                    place,
                    f"the record of `{sweep}` cannot be read ({e}); leave it out, or try `sweeps "
                    "repair`",
                )
            )
    if problems:
        raise locate_problems(space, problems)
    return tuple(sweeps)


def _read(folder: Path, space: Space) -> EarlierSweep:
    """Read the sweep in a folder. The place of a problem is "" or a file of the sweep."""
    study = record_reader.copy_study(folder)
    if study is None or OBJECTIVES_ATTRIBUTE not in study.user_attrs:
        raise InputError(
            "",
            f"the sweep {folder.name} has no trials yet; wait until it has values, or leave it out",
        )
    objectives = Objectives.from_json(study.user_attrs[OBJECTIVES_ATTRIBUTE])
    repeats = Repeats(**study.user_attrs.get("repeats", {}))
    _check_objectives(folder.name, objectives.objectives, space.objectives)
    earlier = recorded_space(folder)
    left_out = Counter[str]()  # number of trials by the reason
    trials = []
    for trial in ByConfiguration(study, repeats).get_trials(deepcopy=False):
        if (state := state_of(trial, objectives)) is None:
            continue
        if not trial.intermediate_values and trial.values is None:
            left_out[NO_VALUE] += 1
            continue
        started = state.started.trial
        if (trainer := _label_in(space, earlier, started)) is None:
            left_out[OTHER_TRAINER] += 1
            continue
        constants: dict[str, JsonValue] = {
            "trainer": trainer,
            "params": {trainer: started.params} if trainer else started.params,
            "scaling": started.shape.scaling,
            "data": started.data,
        }
        try:
            keys = translate(earlier, space, dict(state.keys), constants=constants)
            trials.append(_earlier_trial(keys, trial, bool(state.lineage)))
        except OutsideDomain as e:
            left_out[e.reason] += 1
        except UNREADABLE:
            left_out[UNREADABLE_TRIAL] += 1
    known = {name for trial in trials for name in trial.keys}
    if not known:
        counts = [f"{count} {reason}" for reason, count in left_out.most_common(3)]
        reasons = ", ".join(counts) or "no dimension is in both spaces"
        raise InputError(
            "",
            f"no trial of {folder.name} fits this space ({reasons}); name another sweep, or leave "
            "it out",
        )
    new = tuple(dimension.name for dimension in space.dimensions if dimension.name not in known)
    place = recorded_store(folder) or str(folder)
    return EarlierSweep(folder.name, place, tuple(trials), dict(left_out), new)


def _label_in(space: Space, earlier: Space, trial: Trial) -> str | None:
    """Return the label that the trainer of an earlier trial has in the new space.

    Return None if the new space lacks this trainer. If both spaces have a single trainer, it may
    have another loop now.
    """
    if len(space.trainers) == len(earlier.trainers) == 1:
        return space.trainer.label
    old = earlier.trainer_of(trial.labels)
    same = [each for each in space.trainers.values() if each.is_same(old)]
    labels = [each.label for each in same]
    return old.label if old.label in labels else next(iter(labels), None)


def _check_objectives(sweep: str, theirs: Sequence[Objective], ours: Sequence[Objective]) -> None:
    """Raise an InputError if an earlier sweep has other objectives than the new sweep."""
    their_text = " and ".join(f"{o.goal} {o.metric}" for o in theirs)
    our_text = " and ".join(f"{o.goal} {o.metric}" for o in ours)
    if their_text != our_text:
        raise InputError(
            "",
            f"{sweep} has the objective {their_text}, but this sweep has {our_text}; a sweep "
            f"learns only from sweeps with the same objective, so leave {sweep} out",
        )


def _earlier_trial(keys: Mapping[str, Key], trial: FrozenTrial, perturbed: bool) -> EarlierTrial:
    """Return a trial for the new sweep.

    A trial whose final value is not finite counts as failed.

    Args:
        keys: Keys of the trial's dimensions in the new space.
        trial: The trial, with its repeats.
        perturbed: True if PBT changed the trial's parameters. Its values at rungs are left out.
    """
    values = tuple(trial.values) if trial.state.name == "COMPLETE" else None
    failed = trial.state.name == "FAIL"
    if values is not None and not all(abs(value) < LARGEST for value in values):
        failed = True
    violation = min(LARGEST, float(sum(v for v in trial.constraints.values() if v > 0)))
    rungs = {}
    if not perturbed:
        for step, value in trial.intermediate_values.items():
            rungs[step] = value if abs(value) < LARGEST else math.nan
    if failed:
        return EarlierTrial(keys, rungs, None, math.inf)
    return EarlierTrial(keys, rungs, values, violation)
