"""Find the cheapest of the trials that cannot be told from a winner."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweeps.bundle.manifest import Facts
from sweeps.bundle.trial_choice import saved_model
from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.core.files.checkpoint_files import checkpoint_root, checkpoint_sizes
from sweeps.core.text.command_hints import sweep_argument
from sweeps.core.trial import format_trial_id
from sweeps.study.study_store import StudyStore

# A trial must need less than this share of the winner's time for a prediction to be mentioned.
MOST_TIME = 0.8


def cheaper_trial(
    study_store: StudyStore,
    trials: TrialPredictions,
    similar: Sequence[int],
    winners: Sequence[int],
) -> Facts | None:
    """Return facts about the trial that predicts fastest; None if none is clearly faster.

    Args:
        study_store: The study.
        trials: The predictions of its trials, and the seconds that they took.
        similar: Numbers of the trials that cannot be told from the winner.
        winners: Number of the winner, or of the members of an average.
    """
    own = math.fsum(trials.models[number].seconds for number in winners)
    seconds = {
        number: trials.models[number].seconds
        for number in similar
        if 0 < trials.models[number].seconds < MOST_TIME * own
    }
    for number in sorted(seconds, key=seconds.__getitem__):
        model = saved_model(study_store, number)
        if model is None:
            continue
        trial = format_trial_id(number)
        sizes = checkpoint_sizes(checkpoint_root(study_store.folder, trial))
        return {
            "trial": trial,
            "seconds": study_store.results()[number].seconds,
            "bytes": sizes.get(model.source.rpartition("/")[2], 0),
            "rows_per_second": len(trials.valid.folds) / seconds[number],
            "speedup": own / seconds[number],
            "command": f"export {sweep_argument(study_store.folder)} --trial {trial}",
        }
    return None
