"""From a trial on record to what a user takes away: its bundle, or its checkpoint where the trainer has no `load`.

Needs no Ray: the sweep's folder holds the study, the checkpoints, the fitted chains and the test split.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweeps import metrics, provenance, refs
from sweeps.data.prepared import Shelf
from sweeps.errors import InputError, Problem, nearest
from sweeps.search.study import Ledger
from sweeps.space import Space
from sweeps.trial import CHECK_PREDICTIONS, Result, Trial

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """Where an export went; both None if the trial left no checkpoint."""

    bundle: Path | None = None
    checkpoint: Path | None = None


def export_trial(
    folder: Path, *, space: Space, ledger: Ledger, number: int, target: Path, roots: tuple[Path, ...]
) -> tuple[dict[str, Any], Exported]:
    """Export a trial of a sweep.

    Args:
        folder: the sweep's.
        space, ledger: of the sweep.
        number: the trial's.
        target: folder in which `bundle` (or `checkpoint`) is made.
        roots: folders of the user's modules.

    Returns:
        The trial as `--json` shows it, and what was written.

    Raises:
        BundleError: the bundle answers differently from the model in training.
    """
    from sweeps import bundle

    trial, result, shelf = ledger.trial(number), ledger.results()[number], Shelf(folder)
    about = describe(trial, result)
    if result.checkpoint is None:
        log.warning("trial %s reported no checkpoint: nothing to export", trial.id)
        return about, Exported()
    source, load = Path(result.checkpoint.path), space.trainer.load
    if load is None:
        return about, Exported(checkpoint=bundle.copy_checkpoint(source, target / "checkpoint"))
    for root in reversed(roots):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    facts, fitted = shelf.facts(), shelf.chain(trial.preprocessor)
    if (test := shelf.test()) is not None:
        model = refs.resolve(load)(str(source))
        about["test"] = metrics.score(space.objective.metric, facts.task, test[1], model.predict(fitted.transform(test[0])))
        if about["test"] is None:
            log.warning("objective.metric: `%s` is the loop's own; there is no test score", space.objective.metric)
    stored = source / CHECK_PREDICTIONS
    made = {
        **about,
        "sweep": folder.name,
        "metric": space.objective.metric,
        "goal": space.objective.goal,
        "best_step": result.best_step,
        "seed": trial.seed,
        "space": space.text,
        "overrides": list(space.overrides),
        "data_fingerprint": facts.fingerprint,
        "git": provenance.git(space.data.base),
        "versions": provenance.versions(),
    }
    path = bundle.export(
        target / "bundle",
        checkpoint=source,
        fitted=fitted,
        load=load,
        roots=roots,
        label=facts.label,
        task=facts.task,
        classes=facts.classes,
        raw=facts.check,
        expected=np.load(stored) if stored.exists() else None,
        made=made,
    )
    return about, Exported(bundle=path)


def describe(trial: Trial, result: Result) -> dict[str, Any]:
    """A trial as `--json` shows the best one."""
    return {
        "trial": trial.id,
        "value": result.value,
        "test": None,
        "params": trial.params,
        "preprocessor": trial.chain,
        "scaling": {"num_workers": trial.shape.workers, "resources_per_worker": dict(trial.shape.per_worker)},
    }


def number_of(ledger: Ledger, trial_id: str | None) -> int:
    """The number of the trial a user names, or of the best.

    Raises:
        InputError: no such trial, or no trial with a value.
    """
    known = {f"{n:04d}": n for n in ledger.results()}
    if trial_id is None:
        best = ledger.winner()
        if best is None:
            raise InputError(Problem("export", "no trial of this sweep came to a value"))
        return best
    name = trial_id.zfill(4)
    if name not in known:
        raise InputError(Problem("--trial", f"no trial `{trial_id}`; {nearest(name, known)}"))
    return known[name]
