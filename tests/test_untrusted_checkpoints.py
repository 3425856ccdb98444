"""Pickles in the checkpoints of a stranger's sweep: `resume` and `export` do not read them without
`--trust`.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from sweeps import space as space_file
from sweeps.core.files import trust
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.runs.sweep_run import SweepRun
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import save_space, saved_space
from sweeps.space.sections.trainer_definition import definition_of
from sweeps.study.events import TrialReported
from tests.commands import invoke

SPACE = """\
name: mine
trainer: "sklearn.ensemble:RandomForestClassifier"
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: valid-accuracy, goal: maximize}
limits: {max_trials: 2}
space:
  params: {n_estimators: {choice: [10, 20]}}
"""


class Harmful:
    """An object whose pickle makes a folder when it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep with one complete trial and one interrupted trial.

    Reading a pickle in their checkpoints makes the folder `harm`.
    """
    (tmp_path / "space.yaml").write_text(SPACE)
    space = space_file.load(tmp_path / "space.yaml", ())
    folder = tmp_path / "root" / "mine-1"
    folder.mkdir(parents=True)
    save_space(folder, space, 0.0)
    loop = SearchLoop.open(folder, space)
    for state in (State.COMPLETE, State.RUNNING):
        trial = loop.ask()
        assert trial is not None
        checkpoint = Checkpoint("checkpoint_000001", 1, 1)
        saved = folder / "trials" / trial.id / checkpoint.name
        saved.mkdir(parents=True)
        (saved / "model.pkl").write_bytes(pickle.dumps(Harmful(tmp_path / "harm")))
        loop.store.append(
            TrialReported(
                1.0,
                trial.number,
                (Report(1, {"valid-accuracy": 0.5}, 1.0),),
                checkpoint,
                checkpoint,
                1.0,
            ),
        )
        loop.store.end(trial.number, state)
    return folder


def file_of(sweep: Path, trial: str) -> Path:
    return sweep / "trials" / trial / "checkpoint_000001" / "model.pkl"


@pytest.mark.parametrize(
    ("verb", "trial"), [(("resume",), "0001"), (("export", "--trial", "0000"), "0000")]
)
@pytest.mark.parametrize("signature", [None, "0" * 64], ids=["unsigned", "signed by a stranger"])
def test_r2_a_pickle_is_not_read(
    sweep: Any, tmp_path: Path, verb: Any, trial: str, signature: Any
) -> None:
    if signature is not None:
        file_of(sweep, trial).with_name("model.pkl.mac").write_text(signature)
    before = {path: path.read_bytes() for path in (sweep / "trials").rglob("*") if path.is_file()}
    done = invoke(verb[0], sweep, *verb[1:])
    assert (done.exit_code, done.stdout) == (2, "") and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"{file_of(sweep, trial)}: ") and "--trust" in done.stderr
    assert not (tmp_path / "harm").exists() and not (sweep / "exports").exists()
    assert {path: path.read_bytes() for path in before} == before


def test_export_reads_a_pickle_with_trust(sweep: Any, tmp_path: Path) -> None:
    done = invoke("export", sweep, "--trial", "0000", "--trust")
    assert done.exit_code == 2 and "facts.json" in done.stderr, (
        "this sweep has no prepared data, which is the next file to be read"
    )


@pytest.mark.parametrize("why", ["signed", "trust"])
def test_a_resume_accepts_checkpoints_that_are_signed_or_trusted(sweep: Any, why: str) -> None:
    if why == "signed":
        trust.sign(file_of(sweep, "0001"))
    assert (
        SweepRun(saved_space(sweep)[0], sweep, trust=why == "trust").resume(changed=False) is None
    )


@pytest.mark.parametrize("pickles", [("model.pkl",), ()])
def test_a_resume_waits_for_no_pipe(
    sweep: Any, monkeypatch: pytest.MonkeyPatch, pickles: Any
) -> None:
    definition = definition_of("sweeps.trainers.sklearn")
    monkeypatch.setattr(
        "sweeps.runs.resumption.definition_of",
        lambda *_: dataclasses.replace(definition, pickles=pickles),
    )
    file_of(sweep, "0001").unlink()
    os.mkfifo(file_of(sweep, "0001"))
    done = invoke("resume", sweep)
    assert done.exit_code == 2 and done.stderr.startswith(
        f"{file_of(sweep, '0001')}: is a pipe, but must be a file"
    ), done.stderr
