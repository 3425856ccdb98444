"""The predictions for valid that a trial keeps, and what makes it keep none."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
import ray.train

import sweeps
from sweeps.core import loop_context
from sweeps.core.files.checkpoint_files import fold_folder
from sweeps.core.files.prediction_files import read_predictions
from sweeps.core.loop_context import Current
from sweeps.core.trial import Checkpoint
from sweeps.execution.messages import Assignment, Data, Labels, Ranks
from sweeps.execution.worker import valid_predictions
from sweeps.execution.worker.dataset_cache import DatasetCache
from sweeps.execution.worker.fold_runs import reported_file
from sweeps.execution.worker.trial_session import TrialSession
from sweeps.execution.worker.valid_predictions import keep_predictions
from tests.execution.driving import job, trial

ROWS = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0, 5.0], "y": [0, 1, 0, 1, 1]})


class Rows(DatasetCache):
    """Prepared data in this process, with some rows of valid."""

    def __init__(self, frame: pd.DataFrame, folds: tuple[Rows, ...] = ()):
        super().__init__(Data({}, None))
        self.frame = frame
        self.folds = folds

    def shard(self, name: str, ranks: Ranks) -> Any:
        assert name == "valid"
        return self

    def materialize(self) -> Any:
        return self

    def to_pandas(self) -> pd.DataFrame:
        return self.frame


class Doubles:
    """A model that doubles the feature, in a thread that no library has connected with others."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        assert threading.get_ident() == self.thread != threading.main_thread().ident
        assert list(features.columns) == ["x"]
        return np.asarray(features["x"]) * 2


def load(folder: str) -> Any:
    kind = Path(folder, "kind").read_text()
    if kind == "broken":
        raise RuntimeError("the file is damaged")
    return Doubles()


def session_of(folder: Path, data: DatasetCache, **changes: Any) -> TrialSession:
    """Return the session of a trial on rank 0 whose trainer has the `load` of this module."""
    settings = job(f"{__name__}:load", "none")
    (spec,) = settings.trainers.values()
    trained = dataclasses.replace(spec, load=changes.pop("load", f"{__name__}:load"))
    settings = dataclasses.replace(settings, trainers={"": trained}, **changes)
    own = folder / "trials" / "0000"
    own.mkdir(parents=True)
    assignment = Assignment(
        trial=trial(0, {}, 1, "none"),
        attempt=1,
        ranks=Ranks(),
        folder=str(own),
        data_key="key",
        cached=("key",),
        labels=Labels("y", "binary", (0, 1)),
        data=None,
        checkpoint=None,
    )
    return TrialSession(None, settings, assignment, data)


def checkpointed(session: TrialSession, files: Mapping[str, str], step: int = 3) -> Path:
    """Give a session a best checkpoint with these files, and return its folder."""
    folder = Path(session.folder, "checkpoint_000003")
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    session.best = Checkpoint(folder.name, step, step)
    return folder


def current() -> Current:
    return Current("0000", 0, "y", "binary", (0, 1), "loss", "minimize", 9, 1, None)


def kept(session: TrialSession) -> list[list[float]] | None:
    read = read_predictions(session.folder)
    return None if read is None else [fold.tolist() for fold in read.folds]


def test_best_model_predicts_all_rows_of_valid(tmp_path: Path) -> None:
    session = session_of(tmp_path, Rows(ROWS))
    checkpointed(session, {"kind": "doubles"}, step=7)
    keep_predictions(session, current())
    assert kept(session) == [[2.0, 4.0, 6.0, 8.0, 10.0]]
    read = read_predictions(session.folder)
    assert read is not None and read.step == 7


def test_rows_are_predicted_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valid_predictions, "CHUNK", 2)
    session = session_of(tmp_path, Rows(ROWS))
    checkpointed(session, {"kind": "doubles"})
    keep_predictions(session, current())
    assert kept(session) == [[2.0, 4.0, 6.0, 8.0, 10.0]]


def test_model_of_each_fold_predicts_the_rows_of_its_fold(tmp_path: Path) -> None:
    folds = (Rows(ROWS.iloc[:2]), Rows(ROWS.iloc[2:]))
    session = session_of(tmp_path, Rows(ROWS.iloc[:2], folds), folds=2)
    folder = checkpointed(session, {"fold-1/kind": "doubles", "fold-2/kind": "doubles"})
    keep_predictions(session, current())
    assert kept(session) == [[2.0, 4.0], [6.0, 8.0, 10.0]]
    np.save(reported_file(folder, 2), np.array([7.0, 8.0, 9.0]))
    keep_predictions(session, current())
    assert kept(session) == [[2.0, 4.0], [7.0, 8.0, 9.0]]


def test_without_a_model_of_each_fold_nothing_is_kept(tmp_path: Path) -> None:
    folds = (Rows(ROWS.iloc[:2]), Rows(ROWS.iloc[2:]))
    session = session_of(tmp_path, Rows(ROWS.iloc[:2], folds), folds=2)
    folder = checkpointed(session, {"fold-1/kind": "doubles"})
    keep_predictions(session, current())
    assert kept(session) is None and not fold_folder(folder, 2).exists()


def test_a_loop_without_a_checkpoint_can_report_predictions(tmp_path: Path) -> None:
    session = session_of(tmp_path, Rows(ROWS), load=None)
    keep_predictions(session, current())
    assert kept(session) is None
    own = current()
    loop_context.set_current(own)
    try:
        sweeps.report_predictions([0.1, 0.2, 0.3, 0.4, 0.5])
    finally:
        loop_context.set_current(None)
    keep_predictions(session, own)
    assert kept(session) == [[0.1, 0.2, 0.3, 0.4, 0.5]]


@pytest.mark.parametrize(
    ("predictions", "rule"),
    [
        (np.zeros(4), "there are 4 predictions for the 5 rows of valid"),
        (np.zeros((5, 3)), "the predictions have 0 MiB, and at most 0 MiB are kept"),
    ],
)
def test_predictions_that_cannot_be_kept_are_explained(
    predictions: np.ndarray,
    rule: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(valid_predictions, "MOST_BYTES", 100)
    session = session_of(tmp_path, Rows(ROWS))
    own = current()
    own.predictions = predictions
    with caplog.at_level(logging.WARNING):
        keep_predictions(session, own)
    assert kept(session) is None and rule in caplog.text


def test_a_model_that_cannot_be_loaded_does_not_fail_the_trial(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_of(tmp_path, Rows(ROWS))
    checkpointed(session, {"kind": "broken"})
    with caplog.at_level(logging.WARNING):
        keep_predictions(session, current())
    assert kept(session) is None and "RuntimeError: the file is damaged" in caplog.text


def test_slow_models_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(valid_predictions, "LEAST_SECONDS", -1.0)
    session = session_of(tmp_path, Rows(ROWS))
    checkpointed(session, {"kind": "doubles"})
    with caplog.at_level(logging.WARNING):
        keep_predictions(session, current())
    assert kept(session) is None and "the model predicts too slowly" in caplog.text


@pytest.mark.parametrize("wrong", [np.zeros((2, 2, 2)), ["a"], 3.0, None])
def test_report_predictions_refuses_what_is_no_array_of_numbers(wrong: Any) -> None:
    loop_context.set_current(current())
    try:
        with pytest.raises(TypeError, match=r"takes an array of numbers with the shape \(n,\)"):
            sweeps.report_predictions(wrong)
    finally:
        loop_context.set_current(None)


def test_report_predictions_outside_a_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="can only be called inside the training loop"):
        sweeps.report_predictions([1.0])


def test_predictions_belong_to_the_best_checkpoint(tmp_path: Path) -> None:
    session = session_of(tmp_path, Rows(ROWS), load=None)
    session.pool = MagicMock()
    (tmp_path / "reported").mkdir()
    (tmp_path / "reported" / "model").touch()
    own = current()
    loop_context.set_current(own)
    for loss in (0.5, 0.1, 0.9):
        sweeps.report_predictions([loss] * 5)
        checkpoint = ray.train.Checkpoint.from_directory(str(tmp_path / "reported"))
        session.report({"loss": loss}, checkpoint)
    keep_predictions(session, own)
    assert kept(session) == [[0.1] * 5]
    read = read_predictions(session.folder)
    assert read is not None and read.step == 2
