"""Which trials of a sweep `sweeps export` takes; what a bundle is worth is tested in
`tests/bundle`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps import space as space_file
from sweeps.core.errors import BundleError, InputError, SweepFailed
from sweeps.core.loop_context import Current
from sweeps.core.trial import Checkpoint, Report, Result, State
from sweeps.execution.messages import Ended, RankUpdate
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.exports import sweep_exports
from sweeps.exports.trial_refit import last_checkpoint, steps_of
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import bundle_of, save_space, saved_space
from sweeps.study.events import TrialReported
from tests.commands import space_of
from tests.controller.test_export_values import uneven
from tests.execution.driving import trial
from tests.in_loop import in_loop
from tests.study.trial_states import new_trial, resumed_trial
from tests.trial_updates import rank_places

TWO = "[{metric: loss, goal: minimize}, {metric: size, goal: minimize}]"
# (loss, size) of each trial: 1 and 3 are dominated
VALUES = ((0.1, 4.0), (0.3, 3.0), (0.2, 2.0), (0.5, 9.0), (0.4, 1.0))


def recorded_sweep(tmp_path: Path, objective: str, worse: float = 0.0) -> Path:
    """A sweep that has ended, of a loop without a `load`: what is exported of it are checkpoints.

    Args:
        worse: by so much was a second step, of which the latest checkpoint is; 0 for none.
    """
    file = space_of(tmp_path, "plain", limits="max_trials: 5")
    file.write_text(file.read_text().replace("{metric: loss, goal: minimize}", objective))
    space = space_file.load(file, ())
    folder = tmp_path / "root" / "own-1"
    folder.mkdir(parents=True)
    save_space(folder, space, 0.0)
    loop = SearchLoop.open(folder, space)
    for loss, size in VALUES:
        trial = loop.ask()
        assert trial is not None
        path = folder / "trials" / trial.id / "checkpoint_000001"
        path.mkdir(parents=True)
        (path / "state.json").write_text(json.dumps({"loss": loss}))
        kept = latest = Checkpoint(path.name, 1, 1)
        reports = [Report(1, {"loss": loss, "size": size}, 1.0)]
        if worse:
            later = shutil.copytree(path, path.with_name("checkpoint_000002"))
            latest = Checkpoint(later.name, 2, 2)
            reports.append(Report(2, {"loss": loss + worse, "size": size}, 1.0))
        loop.store.append(TrialReported(1.0, trial.number, tuple(reports), latest, kept, 1.0))
        loop.store.end(trial.number, State.COMPLETE)
    return folder


def test_the_whole_front_each_into_a_folder_by_its_id(tmp_path: Path) -> None:
    sweep = recorded_sweep(tmp_path, TWO)
    done = CliRunner().invoke(cli.main, ["export", str(sweep), "--pareto"], prog_name="sweeps")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        str(sweep / "exports" / name) for name in ("0000", "0002", "0004")
    ]
    losses = [
        json.loads((sweep / "exports" / name / "state.json").read_text())["loss"]
        for name in ("0000", "0002", "0004")
    ]
    assert losses == [0.1, 0.2, 0.4]
    there = [
        written.path.name
        for written in sweep_exports.export(sweep, pareto=True, output=tmp_path / "front")
    ]
    assert (
        there == sorted(p.name for p in (tmp_path / "front").iterdir()) == ["0000", "0002", "0004"]
    )


def test_the_front_is_exported_whole_or_not_at_all(tmp_path: Path) -> None:
    sweep = recorded_sweep(tmp_path, TWO)
    shutil.rmtree(sweep / "trials" / "0002" / "checkpoint_000001")
    with pytest.raises(
        InputError,
        match=r"--pareto: the checkpoint of trial 0002 is missing; use --trial to export another "
        r"trial",
    ):
        sweep_exports.export(sweep, pareto=True)
    assert not (sweep / "exports").exists()


def test_so_many_of_the_best_whose_checkpoints_are_still_there(tmp_path: Path) -> None:
    sweep = recorded_sweep(tmp_path, "{metric: loss, goal: minimize}")
    shutil.rmtree(sweep / "trials" / "0000" / "checkpoint_000001")  # as retention may
    done = CliRunner().invoke(cli.main, ["export", str(sweep), "--top", "2"], prog_name="sweeps")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        str(sweep / "exports" / name) for name in ("0002", "0001")
    ], "the best first"
    done = CliRunner().invoke(
        cli.main,
        ["export", str(sweep), "--top", "9", "-o", str(tmp_path / "all")],
        prog_name="sweeps",
    )
    assert (
        len(list((tmp_path / "all").iterdir())) == 4
        and "note: --top 9: exported only 4, because no other trial has ended" in done.output
    )
    for number in ("0001", "0002", "0003", "0004"):
        shutil.rmtree(sweep / "trials" / number)
    with pytest.raises(
        InputError,
        match="--top: this sweep has no completed trial with a value of the objective and a "
        "checkpoint",
    ):
        sweep_exports.export(sweep, top=1)


def test_what_pareto_is_not_for(tmp_path: Path) -> None:
    sweep = recorded_sweep(tmp_path, "{metric: loss, goal: minimize}")
    with pytest.raises(
        InputError,
        match="--pareto: needs several objectives, but this sweep has only one, `loss`; "
        "use --top K",
    ):
        sweep_exports.export(sweep, pareto=True)
    for more in ({"trial": "0"}, {"top": 2}):
        with pytest.raises(InputError, match="--pareto: cannot be combined with --t"):
            sweep_exports.export(sweep, pareto=True, **more)
    done = CliRunner().invoke(
        cli.main,
        ["export", str(sweep), "--pareto", "--register", "m", "--alias", "best"],
        prog_name="sweeps",
    )
    assert done.exit_code == 2 and "--alias refers to one model" in done.output


def test_what_refit_is_not_for(tmp_path: Path) -> None:
    sweep = recorded_sweep(tmp_path, "{metric: loss, goal: minimize}")
    for more in ({"pareto": True}, {"top": 2}):
        with pytest.raises(InputError, match=r"--(pareto|top): cannot be combined with --refit"):
            sweep_exports.export(sweep, refit=True, **more)
    space, _ = saved_space(sweep)
    loop = SearchLoop.open(sweep, space)
    trial = SearchLoop.open(
        sweep, dataclasses.replace(space, limits=dataclasses.replace(space.limits, max_trials=6))
    ).ask()
    assert trial is not None
    loop = SearchLoop.open(sweep, space)
    loop.store.end(trial.number, State.FAIL, "boom")
    with pytest.raises(
        InputError,
        match="--refit: trial 0005 reported no value, so the number of steps to train is unknown",
    ):
        sweep_exports.export(sweep, trial="5", refit=True)
    assert not (sweep / "exports").exists()


@in_loop
def test_the_last_model_counts_where_all_rows_are_learnt_from() -> None:
    known: dict[str, Any] = {
        "trial": "0000",
        "seed": 0,
        "label": "y",
        "task": "binary",
        "classes": (0, 1),
        "metric": "loss",
        "goal": "minimize",
    }
    searched, again = (
        Current(**known, max_t=3, threads=1, check=None, keep_last=last) for last in (False, True)
    )
    assert not searched.better(0.5, 0.1) and not searched.better(math.nan, 0.1)
    assert again.better(0.5, 0.1) and again.better(math.nan, 0.1) and again.better(0.5, None)
    for last, best in ((False, "1"), (True, "3")):
        trained = RunningTrial(new_trial(trial(0, {}, 1, "none")), "", keeps_last=last)
        trained.begin_attempt(rank_places(1))
        for step, loss in ((1, 0.1), (2, 0.5), (3, 0.4)):
            kept = Checkpoint(str(step), step, step)
            trained.record(1, RankUpdate(0, step, (Report(step, {"loss": loss}, 0.0),), (kept,)))
        assert trained.state.best is not None and trained.state.best.name == best


def test_a_refit_trains_the_steps_of_the_exported_model() -> None:
    early = Checkpoint("c", 5, 4)
    assert steps_of(Result(State.COMPLETE, 0.1, best_step=7, checkpoint=early)) == 4, (
        "which the loop can save"
    )
    assert (
        steps_of(Result(State.COMPLETE, 0.1, best_step=7)) == 7
        and steps_of(Result(State.FAIL)) is None
    )


def test_a_refit_takes_the_model_of_the_last_step_alone() -> None:
    kept = Checkpoint("c", 4, 4)
    end = Ended(0, State.COMPLETE)
    assert last_checkpoint(resumed_trial(best=kept), end, 4) is kept
    with pytest.raises(SweepFailed, match="trial 0000 failed when it was trained again"):
        last_checkpoint(resumed_trial(best=kept), Ended(0, State.FAIL, "no room"), 4)
    for best, said in (
        (None, "trial 0000 saved no checkpoint"),
        (
            Checkpoint("c", 4, 2),
            "saved the model of step 2 instead of the model of the last step, 4",
        ),
    ):
        with pytest.raises(BundleError, match=said):
            last_checkpoint(resumed_trial(best=best), end, 4)


def test_best_step_is_exported_unless_latest_is_requested(
    tmp_path: Path,
) -> None:
    folder, _ = uneven(tmp_path)
    for more, name, step, note in (
        (
            (),
            "0000",
            2,
            (
                "exported the model of step 2 (value 0.35), because the loop saved no checkpoint "
                "at "
                "the trial's best step, 3"
            ),
        ),
        (("--latest",), "0000-latest", 4, "exported the model of step 4 (value 0.5)"),
    ):
        done = CliRunner().invoke(cli.main, ["export", str(folder), *more], prog_name="sweeps")
        assert done.exit_code == 0 and done.output.splitlines() == [
            str(folder / "exports" / name),
            note,
        ]
        assert json.loads((folder / "exports" / name / "state.json").read_text()) == step
    with pytest.raises(InputError, match="--latest: cannot be combined with --refit"):
        sweep_exports.export(folder, refit=True, latest=True)
    with pytest.raises(
        InputError, match="--cpus: is for an export that trains a model; add --refit"
    ):
        sweep_exports.export(folder, cpus=2)
    shutil.rmtree(folder / "trials" / "0000" / "checkpoint_000004")  # as retention does
    with pytest.raises(
        InputError, match="trial 0000 cannot be exported, because its latest checkpoint was deleted"
    ):
        sweep_exports.export(folder, latest=True, output=tmp_path / "other")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder, _ = uneven(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"--output: .*file/out cannot be written: Not a directory"
    ):
        sweep_exports.export(folder, output=tmp_path / "file" / "out")


def unsaved(tmp_path: Path, *states: State, checkpoint_of: int | None = None) -> Path:
    """A sweep of trials that reported one step each. Only `checkpoint_of` has a checkpoint."""
    space = space_file.load(space_of(tmp_path, "plain", limits="max_trials: 5"), ())
    folder = tmp_path / "root" / "own-1"
    folder.mkdir(parents=True)
    save_space(folder, space, 0.0)
    loop = SearchLoop.open(folder, space)
    for state in states:
        trial, kept = loop.ask(), None
        assert trial is not None
        if trial.number == checkpoint_of:
            kept = Checkpoint("checkpoint_000001", 1, 1)
            (folder / "trials" / trial.id / kept.name).mkdir(parents=True)
        loop.store.append(
            TrialReported(1.0, trial.number, (Report(1, {"loss": 0.5}, 1.0),), kept, kept, 1.0)
        )
        loop.store.end(trial.number, state)
    return folder


NO_CHECKPOINT = (
    "trial 0000 cannot be exported, because it reported no checkpoint; a bundle needs a "
    "checkpoint, from "
)
LOAD = "and `load` in the section `trainer`; "
IN_THE_LOOP = (
    "`ray.train.report(metrics, checkpoint=...)` in the loop, "
    + LOAD
    + "see docs/how-to/own-loop.md"
)


def test_a_loop_without_checkpoints_learns_what_a_bundle_needs(tmp_path: Path) -> None:
    folder = unsaved(tmp_path, State.COMPLETE)
    for options, place in (([], "export"), (["--trial", "0"], "--trial")):
        done = CliRunner().invoke(cli.main, ["export", str(folder), *options], prog_name="sweeps")
        assert done.output == f"{place}: {NO_CHECKPOINT}{IN_THE_LOOP}\n" and done.exit_code == 2
    with pytest.raises(InputError) as e:
        bundle_of(folder)
    why = (
        "the sweep has no bundle, because its trainer has no `load`; a bundle needs a checkpoint, "
        "from "
    )
    assert str(e.value) == f"{folder}: {why}{IN_THE_LOOP}"


def test_trial_without_checkpoint_names_trials_with_one(tmp_path: Path) -> None:
    folder = unsaved(tmp_path, State.PRUNED, State.COMPLETE, State.FAIL, checkpoint_of=1)
    said = (
        "0000 cannot be exported, because it reported no checkpoint; trials with a checkpoint: 0001"
    )
    with pytest.raises(InputError, match=f"{said}$"):
        sweep_exports.export(folder, trial="0")
