"""Load the models of a sweep, and predict and score with them."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import BundleError, Problem, UnreadableFile
from sweeps.core.files import provenance
from sweeps.core.files.checkpoint_files import fold_folder, local_checkpoint
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
from .trial_choice import SavedModel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ModelFiles:
    """A trained model of a trial.

    Attributes:
        trial: The trial.
        folder: Local folder with the model: a checkpoint, or the part of a fold in it. Its pickles
            are signed with this user's key, or trusted.
        chain: The fitted preprocessor; None if the loop read its own data.
        fold: Number of the fold, starting with 1, if the checkpoint has a model for each fold of a
            cross-validation. Otherwise None.
    """

    trial: Trial
    folder: Path
    chain: FittedChain | None
    fold: int | None = None


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

    def open_searched(self, model: SavedModel, opened: contextlib.ExitStack) -> list[ModelFiles]:
        """Return the model that a trial of the search has saved.

        After a cross-validation, these are the models of all folds that the trial has trained.

        Args:
            model: The model.
            opened: The files of the model exist until this stack is closed.

        Raises:
            InputError: A folder has links, or a pickle that is not signed with this user's key.
            BundleError: The checkpoint has no model of a fold.
        """
        trial = self.study_store.trial(model.number)
        checkpoint = opened.enter_context(local_checkpoint(model.source))
        refuse_special_files(checkpoint)
        if not self.space.data.folds:
            self.check_files(trial, checkpoint)
            chain = self.chain(trial) if self.space.data.is_named else None
            return [ModelFiles(trial, checkpoint, chain)]
        models = []
        for fold in range(1, model.step + 1):  # each fold is a step
            folder = fold_folder(checkpoint, fold)
            if not folder.is_dir():
                raise BundleError(
                    f"trial {trial.id} cannot be exported, because its loop reported no "
                    f"checkpoint in fold {fold}"
                )
            self.check_files(trial, folder)
            models.append(ModelFiles(trial, folder, self.chain(trial, fold), fold))
        return models

    def check_files(self, trial: Trial, folder: Path) -> None:
        """Check that a folder has only regular files, and pickles that may be read.

        Raises:
            InputError: The folder has links, or a pickle that is not signed with this user's key.
        """
        refuse_special_files(folder)
        pickles = [name for each in self._definitions(trial) for name in each.pickles]
        refuse_unsigned(folder, pickles, self.trust)

    def chain(self, trial: Trial, fold: int | None = None) -> FittedChain:
        """Load the preprocessor that was fitted for a trial of the search, or for one fold of it.

        Raises:
            UnreadableFile: See `PreparedStore.load_chain`.
        """
        return self.prepared.load_chain(trial.preprocessor, trial.data, fold)

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

    def predict(
        self, model: ModelFiles, raw: pd.DataFrame, *, method: str = "predict"
    ) -> np.ndarray:
        """Predict rows with a model.

        Args:
            model: The model.
            raw: The raw rows.
            method: The model's method to call. `predict` is called instead if the model has no such
                method.

        Raises:
            BundleError: The user's `load` raised an error, or the method of the loaded model raised
                an error.
        """
        load = self.space.trainer_of(model.trial.labels).load
        assert load is not None
        rows = raw if model.chain is None else model.chain.transform(raw)
        try:
            loaded = references.resolve(load)(str(model.folder))
            return np.asarray(getattr(loaded, method, loaded.predict)(rows))
        except Exception as e:
            raise BundleError(
                f"trial {model.trial.id} cannot be exported: `{load}`, or the model that it "
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
