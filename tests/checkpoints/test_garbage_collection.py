"""`sweeps gc`: what it deletes, keeps and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps import space as space_file
from sweeps.checkpoints.garbage_collection import parse_size
from sweeps.core.errors import InputError
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import save_space
from sweeps.study.events import TrialReported
from tests.commands import space_of


@pytest.fixture
def sweep(tmp_path: Path) -> Any:
    """A sweep of four trials with values 0.4, 0.3, 0.2 and 0.1. The last was interrupted.

    Each has two checkpoints of 1000 bytes.
    """
    space = space_file.load(space_of(tmp_path, "plain"), ())
    folder = tmp_path / "root" / "own-1"
    folder.mkdir(parents=True)
    save_space(folder, space, 0.0)
    loop = SearchLoop.open(folder, space)
    for i in range(4):
        trial = loop.ask()
        assert trial is not None

        def saved(step: int, trial: Any = trial) -> Checkpoint:
            path = folder / "trials" / trial.id / f"checkpoint_{step:06d}"
            path.mkdir(parents=True)
            (path / "state.json").write_text("x" * 1000)
            return Checkpoint(path.name, step, step)

        value = 0.4 - i / 10
        reports = (Report(1, {"loss": value}, 1.0), Report(2, {"loss": 1.0}, 2.0))
        best, latest = saved(1), saved(2)
        loop.store.append(TrialReported(1.0, trial.number, reports, latest, best, 1.0))
        if i < 3:
            loop.store.end(trial.number, State.COMPLETE)
    return folder


def gc(folder: Path, *args: str) -> Any:
    done = CliRunner().invoke(cli.main, ["gc", str(folder), *args], prog_name="sweeps")
    left = {
        t.name: sorted(p.name for p in t.glob("checkpoint_*"))
        for t in sorted((folder / "trials").iterdir())
    }
    return done, [len(v) for v in left.values()], left


def test_each_trial_keeps_its_best_and_the_interrupted_one_keeps_all(sweep: Any) -> None:
    done, counts, _ = gc(sweep, "--dry-run")
    assert counts == [2, 2, 2, 2] and done.output.startswith("would free")
    done, counts, left = gc(sweep)
    assert done.exit_code == 0 and counts == [1, 1, 1, 2]
    assert left["0002"] == ["checkpoint_000001"]
    assert (
        done.output == "freed 3.0 kB: 3 checkpoints of 3 trials; the other checkpoints use 5.0 kB\n"
    )


def test_top_keeps_checkpoints_of_the_best_trials(sweep: Any) -> None:
    assert gc(sweep, "--top", "1")[1] == [0, 0, 1, 2]


def test_a_deleted_checkpoint_cannot_be_exported(sweep: Any) -> None:
    gc(sweep, "--top", "1")
    done = CliRunner().invoke(cli.main, ["export", str(sweep), "--trial", "0"], prog_name="sweeps")
    assert (
        done.exit_code == 2
        and done.output
        == "--trial: trial 0000 cannot be exported, because its checkpoint was deleted\n"
    )


@pytest.mark.parametrize("text", ["", "10", "-1GB", "GB", "10GiB", "many"])
def test_text_that_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match="is not a size; write a number with a unit, such as 500MB or 10GB"
    ):
        parse_size(text)
