"""Find the cheapest of the trials that cannot be told from a winner."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.bundle.manifest import Facts
from sweeps.bundle.trial_choice import saved_model
from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.core.files.checkpoint_files import checkpoint_root, checkpoint_sizes
from sweeps.core.text.command_hints import sweep_argument
from sweeps.core.trial import format_trial_id
from sweeps.study.study_store import StudyStore

# The model of a trial must be smaller than this share of the winner's to be mentioned.
MOST_BYTES = 0.8


def cheaper_trial(
    study_store: StudyStore,
    trials: TrialPredictions,
    similar: Sequence[int],
    winners: Sequence[int],
) -> Facts | None:
    """Return facts about the trial with the smallest model; None if none is clearly smaller.

    The size of a model also tells how long it takes to predict, and can be measured exactly.

    Args:
        study_store: The study.
        trials: The predictions of its trials, and the seconds that they took.
        similar: Numbers of the trials that cannot be told from the winner.
        winners: Number of the winner, or of the members of an average.
    """
    sizes: dict[int, int] = {}
    for number in {*similar, *winners}:
        if (model := saved_model(study_store, number)) is not None:
            root = checkpoint_root(study_store.folder, format_trial_id(number))
            sizes[number] = checkpoint_sizes(root).get(model.source.rpartition("/")[2], 0)
    own = sum(sizes.get(number, 0) for number in winners)
    smaller = [n for n in similar if 0 < sizes.get(n, 0) < MOST_BYTES * own]
    if not smaller:
        return None
    number = min(smaller, key=lambda n: (sizes[n], n))
    trial = format_trial_id(number)
    seconds = trials.models[number].seconds
    return {
        "trial": trial,
        "seconds": study_store.results()[number].seconds,
        "bytes": sizes[number],
        "winner_bytes": own,
        "rows_per_second": len(trials.valid.folds) / seconds if seconds > 0 else None,
        "command": f"export {sweep_argument(study_store.folder)} --trial {trial}",
    }
