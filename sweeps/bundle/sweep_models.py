"""Load the models of a sweep, and predict and score with them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import BundleError, Problem, UnreadableFile
from sweeps.core.files import provenance
from sweeps.core.files.checkpoint_files import local_checkpoint
from sweeps.core.files.sweep_folder import refuse_special_files
from sweeps.core.files.trust import refuse_unsigned
from sweeps.core.loop_context import CHECK_PREDICTIONS
from sweeps.core.plugins import references
from sweeps.core.trial import Trial
from sweeps.data.prepared_store import PreparedStore
from sweeps.data.preprocessing.fitted_chain import FittedChain
from sweeps.space import Space
from sweeps.space.sections.trainer_definition import TrainerDefinition, definition_of
from sweeps.study.study_store import StudyStore

from .manifest import Facts
from .model_code import ModelCode

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SweepModels:
    """The models of a sweep.

    Attributes:
        study_store: The study.
        space: The search space.
        roots: Folders of the user's modules. They are added to `sys.path`.
        trust: True to read the pickles in the sweep's folder even if they are not signed with this
            user's key.
    """

    study_store: StudyStore
    space: Space
    roots: tuple[Path, ...]
    trust: bool = False

    def __post_init__(self) -> None:
        """Make the user's modules importable."""
        sys.path[:0] = [str(root) for root in self.roots if str(root) not in sys.path]

    @property
    def prepared(self) -> PreparedStore:
        """The prepared data."""
        return PreparedStore(self.study_store.folder, self.trust)

    def chain(self, trial: Trial) -> FittedChain:
        """Load the preprocessor that was fitted for a trial of the search."""
        return self.prepared.load_chain(trial.preprocessor, trial.data)

    def _definitions(self, trial: Trial) -> list[TrainerDefinition]:
        """Return the definitions in the modules of the loop of a trial and of its `load`."""
        trainer = self.space.trainer_of(trial.labels)
        modules = {references.parse(name)[0] for name in (trainer.loop, trainer.load) if name}
        return [definition_of(module, self.roots) for module in sorted(modules)]

    def code(self, trial: Trial) -> ModelCode:
        """Return the code that loads a trial's model. The trainer must have a `load`."""
        trainer = self.space.trainer_of(trial.labels)
        assert trainer.load is not None
        # Only the trainer's own `load` imports the modules that options name. The user's `load`
        # imports what it needs by itself.
        named = trainer.references if trainer.definition.load else ()
        return ModelCode(
            trainer.load,
            self.roots,
            left_out=[name for each in self._definitions(trial) for name in each.resume_files],
            imports=[*(references.parse(name)[0] for name in named), *trainer.packages],
        )

    def facts(self, fingerprint: str) -> Facts:
        """Return the facts about the sweep that every bundle's manifest records.

        Args:
            fingerprint: Fingerprint of the data.
        """
        space = self.space
        return {
            "sweep": self.study_store.folder.name,
            "metric": space.objective.metric,
            "goal": space.objective.goal,
            "space": space.public(space.text),
            "overrides": list(map(space.public, space.overrides)),
            "data_fingerprint": fingerprint,
            "read": vars(space.data.read),
            "git": provenance.git_state(space.data.base),
            "versions": provenance.versions(),
        }

    @contextlib.contextmanager
    def local_folder(self, trial: Trial, checkpoint: str | Path) -> Iterator[Path]:
        """Yield the local folder of a checkpoint, which exists until the `with` block ends.

        Args:
            trial: The trial that reported the checkpoint.
            checkpoint: Path or address of the checkpoint.

        Raises:
            InputError: The folder has links, or a pickle that is not signed with this user's key.
        """
        with local_checkpoint(checkpoint) as files:
            refuse_special_files(files)
            pickles = [name for each in self._definitions(trial) for name in each.pickles]
            refuse_unsigned(files, pickles, self.trust)
            yield files

    def predict(
        self, trial: Trial, checkpoint: str | Path, rows: pd.DataFrame, *, method: str = "predict"
    ) -> np.ndarray:
        """Predict rows with the model of a checkpoint.

        Args:
            trial: The trial.
            checkpoint: Path or address of the checkpoint.
            rows: The prepared rows.
            method: The model's method to call. `predict` is called instead if the model has no such
                method.

        Raises:
            BundleError: The user's `load` raised an error, or the method of the loaded model raised
                an error.
        """
        load = self.space.trainer_of(trial.labels).load
        assert load is not None
        with self.local_folder(trial, checkpoint) as files:
            try:
                model = references.resolve(load)(str(files))
                return np.asarray(getattr(model, method, model.predict)(rows))
            except Exception as e:
                raise BundleError(
                    f"trial {trial.id} cannot be exported: `{load}`, or the model that it "
                    f"returned, raised {type(e).__name__}: {e}"
                ) from e


def recorded_predictions(checkpoint: Path) -> np.ndarray | None:
    """Return the predictions that the trainer recorded for the check of a bundle.

    Args:
        checkpoint: Folder of the checkpoint.

    Returns:
        The predictions, shape (n,) or (n, k); None if the trainer recorded none.

    Raises:
        UnreadableFile: The file holds no array of numbers.
    """
    file = checkpoint / CHECK_PREDICTIONS
    if not file.exists():
        return None
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            raise ValueError("it is an archive")
    except (OSError, ValueError, EOFError, MemoryError) as e:
        reason = " ".join(str(e).split())
        rule = f"holds no array of NumPy ({reason}); restore the file, or export another trial"
        raise UnreadableFile(Problem(str(file), rule)) from e
    return loaded


def score_test(
    metric: str, task: str | None, labels: np.ndarray, predictions: np.ndarray
) -> tuple[float | None, str | None]:
    """Score predictions of the test split.

    Args:
        metric: The name of a metric, or a user's function `module:function`.
        task: "binary", "multiclass", "regression", or None if the sweep has no label.
        labels: Encoded labels, shape (n,).
        predictions: The model's output for the same n rows.

    Returns:
        The score and None. If the score cannot be computed: None, and a note that tells the user
            the reason.
    """
    try:
        value = metrics.score(metric, task, labels, predictions)
    except Exception as e:
        if references.is_reference(metric):
            return None, f"no test score: the metric `{metric}` raised {type(e).__name__}: {e}"
        if isinstance(e, ValueError):
            return None, f"no test score: {e}"
        raise
    if value is not None:
        return value, None
    note = (
        f"no test score: only the loop computes the metric `{metric}`, so sweeps cannot compute it"
    )
    return None, f"{note} on the test rows"
