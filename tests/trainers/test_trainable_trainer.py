"""The trainer `trainable` without Ray: classes for Ray Tune, their checkpoints, and instances that
are used again.
"""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import ray.train
from ray import tune

from sweeps.core.files import trust
from sweeps.core.loop_context import Current
from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers import trainable as trainer

HERE = __name__
# Names of the methods that were called, of all instances.
calls: list[Any] = []


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the change of an environment variable by Ray, and forget earlier calls."""
    monkeypatch.setenv("TUNE_ORIG_WORKING_DIR", "")
    calls.clear()


class Descent(tune.Trainable):
    """Gradient descent with noise. The checkpoint is a dict."""

    def setup(self, config: dict[str, Any]) -> None:
        calls.append(("setup", dict(config)))
        self.x, self.random = 8.0, random.Random(random.random())
        self.rate, self.steps = config["rate"], config.get("steps", 6)

    def step(self) -> dict[str, Any]:
        self.x -= self.rate * 2 * self.x + self.random.gauss(0, 0.1)
        calls.append("step")
        return {
            "loss": self.x**2,
            "x": self.x,
            "nested": {"iteration": self.iteration},
            "done": self.iteration + 1 >= self.steps,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        return {"x": self.x, "random": self.random.getstate()}

    def load_checkpoint(self, checkpoint: Any) -> None:
        calls.append("load_checkpoint")
        self.x = checkpoint["x"]
        self.random.setstate(checkpoint["random"])


class Writes(Descent):
    """The same training, with a checkpoint in files.

    One of the files has the name of a file that other trainers of sweeps write.
    """

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "sub").mkdir()
        Path(checkpoint_dir, "sub", "state.json").write_text(
            json.dumps([self.x, self.random.getstate()])
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load the state from a folder, which a class that saves a folder gets."""
        self.x, (version, state, gauss) = json.loads(
            Path(checkpoint, "sub", "state.json").read_text()
        )
        self.random.setstate((version, tuple(state), gauss))


class Fails(Descent):
    def step(self) -> dict[str, Any]:
        raise OSError("no more rows")

    def cleanup(self) -> None:
        calls.append("cleanup")


class Scripted(tune.Trainable):
    """Returns the dicts in `config`, one for each step."""

    def step(self) -> dict[str, Any]:
        result: dict[str, Any] = self.config["results"][self.iteration]
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint: dict[str, int] | None) -> None:
        assert checkpoint is not None and checkpoint["iteration"] == self.iteration


class Reads(tune.Trainable):
    """Reads the prepared data, and looks at the attributes of a `Trainable`."""

    def setup(self, config: dict[str, Any]) -> None:
        self.rows = ray.train.get_dataset_shard("train").materialize().to_pandas()

    def step(self) -> dict[str, Any]:
        calls.append(
            {
                "id": self.trial_id,
                "name": self.trial_name,
                "logdir": self.logdir,
                "cwd": os.getcwd(),
                "config": self.config,
            }
        )
        Path("written.txt").write_text("by the class")
        return {"loss": float(self.rows["y"].sum()), "done": True}

    # Ray accepts the path of the folder, too.
    def save_checkpoint(self, checkpoint_dir: str) -> str:  # type: ignore[override]
        return checkpoint_dir


def a_loop(config: dict[str, Any]) -> None:
    raise NotImplementedError


def about(folder: Path, cls: str, **changed: Any) -> Current:
    """Return what the loop knows of a trial whose files are in `folder`."""
    given: dict[str, Any] = {
        "metric": "loss",
        "goal": "minimize",
        "asked": ("loss",),
        "roots": (folder,),
        "_folder": folder / "trial" / "files",
    }
    given |= {
        "trial": "0007",
        "seed": 3,
        "label": None,
        "task": None,
        "classes": None,
        "max_t": None,
        "threads": 1,
        "check": None,
    }
    return Current(**given | {"options": {"trainable": f"{HERE}:{cls}"}} | changed)


def run(
    folder: Path,
    cls: str,
    params: dict[str, Any] | None = None,
    seed: int = 3,
    shards: Any = None,
    **more: Any,
) -> LoopRun:
    """Train a class of this module.

    Arguments of `run_loop` are passed on, and all others change the `Current`.
    """
    keep = folder / "kept"
    keep.mkdir(exist_ok=True, parents=True)
    ours = {key: more.pop(key) for key in ("resume", "stop_at") if key in more}
    random.seed(seed)
    return run_loop(
        trainer.train_func,
        {"rate": 0.2} if params is None else params,
        about(folder, cls, **more),
        shards or {},
        keep,
        **ours,
    )


def scripted(folder: Path, losses: list[Any], **more: Any) -> LoopRun:
    """Train with the given values of the objective. The last step is done."""
    results = [value if isinstance(value, dict) else {"loss": value} for value in losses]
    results[-1]["done"] = True
    return run(folder, "Scripted", {"results": results}, **{"checkpoint_interval": 1e9} | more)


class Suite(TrainerTests):
    """The suite for all trainers."""

    module = "sweeps.trainers.trainable"
    params: ClassVar = {"rate": 0.2}
    task = "regression"
    metric = "loss"
    cls: ClassVar[str]

    def run(self, folder: Path, **more: Any) -> LoopRun:
        return run(
            folder,
            self.cls,
            dict(self.params),
            **{"checkpoint_interval": 0.0} | more,
        )


class TestDict(Suite):
    cls = "Descent"


class TestFiles(Suite):
    cls = "Writes"


# ---- reports


def test_a_report_is_the_dict_of_step_without_what_ray_adds(tmp_path: Path) -> None:
    results = [
        {"loss": 1.0, "timesteps_this_iter": 10, "text": "a"},
        {"loss": np.float32(0.5), "timesteps_this_iter": 5, "done": True},
    ]
    expected = [
        {"loss": 1.0, "timesteps_this_iter": 10, "text": "a", "timesteps_total": 10},
        {"loss": 0.5, "timesteps_this_iter": 5, "timesteps_total": 15},
    ]
    assert run(tmp_path, "Scripted", {"results": results}).metrics == expected


def test_step_raises_its_error_and_the_instance_is_cleaned_up(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no more rows"):
        run(tmp_path, "Fails")
    assert calls[-1] == "cleanup"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "a_loop",
            (
                rf"`{HERE}:a_loop` is not a subclass of ray.tune.Trainable; .* write trainer: "
                rf"{{loop: "
                rf'"{HERE}:a_loop"}}$'
            ),
        ),
        ("Path", r"Path` is not a subclass of ray\.tune\.Trainable$"),
    ],
)
def test_anything_but_a_trainable_is_refused(tmp_path: Path, name: str, message: Any) -> None:
    with pytest.raises(TypeError, match=message):
        run(tmp_path, name)


def test_trainable_reads_prepared_data_and_names_its_trial(tmp_path: Path) -> None:
    here = os.getcwd()
    loop_run = run(
        tmp_path, "Reads", {"rate": 1}, shards={"train": FakeShard(pd.DataFrame({"y": [1, 2]}))}
    )
    folder = str(tmp_path / "trial" / "files")
    assert loop_run.metrics == [{"loss": 3.0}]
    assert calls == [
        {"id": "0007", "name": "fake", "logdir": folder, "cwd": folder, "config": {"rate": 1}}
    ]
    assert Path(folder, "written.txt").exists() and os.getcwd() == here


# ---- checkpoints


def test_checkpoints_are_saved_at_each_best_step_and_at_the_end(tmp_path: Path) -> None:
    loop_run = scripted(tmp_path, [3.0, 2.0, 4.0, math.nan, 1.0, 5.0, 6.0])
    assert [*loop_run.checkpoints] == [1, 2, 5, 7]
    assert [*scripted(tmp_path / "max", [3.0, 2.0, 4.0], goal="maximize").checkpoints] == [1, 3]


def test_checkpoints_are_saved_on_request_at_milestones_and_max_t(tmp_path: Path) -> None:
    losses = [1.0, 2.0, {"loss": 3.0, "should_checkpoint": True}, 4.0, 5.0, 6.0, 7.0]
    loop_run = scripted(tmp_path, losses, milestones=range(2, 8, 2), max_t=5, stop_at=5)
    assert [*loop_run.checkpoints] == [1, 2, 3, 4, 5]
    assert "should_checkpoint" not in loop_run.metrics[2]


def test_a_refit_saves_only_the_last_step(tmp_path: Path) -> None:
    assert [*scripted(tmp_path, [3.0, 2.0, 1.0], keep_last=True).checkpoints] == [3]


def test_the_best_value_and_the_counters_continue_after_a_resume(tmp_path: Path) -> None:
    results = [{"loss": loss, "timesteps_this_iter": 2} for loss in (1.0, 3.0, 2.0, 0.5)]
    results[1]["should_checkpoint"] = results[-1]["done"] = True
    first = run(tmp_path, "Scripted", {"results": results}, stop_at=2, checkpoint_interval=1e9)
    again = run(
        tmp_path / "again",
        "Scripted",
        {"results": results},
        resume=first.checkpoints[2],
        checkpoint_interval=1e9,
    )
    assert [*again.checkpoints] == [2], "the third step is not better than the first"
    assert [metrics["timesteps_total"] for metrics in again.metrics] == [6, 8]


def test_a_dict_is_signed_and_files_are_not(tmp_path: Path) -> None:
    checkpoint = run(tmp_path, "Descent").checkpoints[6]
    trust.refuse_unsigned(checkpoint, ["_dict_checkpoint.pkl"], trust=False)
    (checkpoint / "_dict_checkpoint.pkl").write_bytes(b"by a stranger")
    with pytest.raises(trust.UntrustedFile, match=r"_dict_checkpoint\.pkl"):
        trust.refuse_unsigned(checkpoint, ["_dict_checkpoint.pkl"], trust=False)
    files = run(tmp_path / "files", "Writes").checkpoints[6]
    assert {str(path.relative_to(files)) for path in files.rglob("*")} == {
        "sub",
        "sub/state.json",
        "sweeps_trainable.json",
    }
