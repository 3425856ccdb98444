"""The tutorials with torch: linear regression, the Vision Transformer, and checkpoints."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import sweeps
from search_spaces.tutorials import checkpoints, decoded, linear
from sweeps.plan import plan, render
from sweeps.space import load
from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from tests.commands import REPO

TUTORIALS = REPO / "search_spaces" / "tutorials"
IMAGES = REPO / "tests" / "fixtures" / "images"
SPACES = {"linear": 1, "vit": 2, "vit_ray_data": 2, "checkpoints": 2}  # with their numbers of cells

integration = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(240)]


# ---- unit tests


@pytest.mark.parametrize("name", SPACES)
def test_the_space_is_planned(name: Any) -> None:
    space = load(TUTORIALS / f"{name}.yaml")
    planned = plan(space, {"CPU": 2.0})
    assert len(space.cells) == SPACES[name] and "1 at once" in render(planned)


def test_there_are_two_hundred_small_images_in_five_classes() -> None:
    files = sorted(IMAGES.rglob("*.jpg"))
    assert len(files) == 200 and len({file.parent for file in files}) == 5
    assert max(file.stat().st_size for file in files) < 4096


def test_an_image_is_decoded_from_a_file_or_from_a_column() -> None:
    encoded = io.BytesIO()
    Image.new("L", (40, 20), 99).save(encoded, "png")
    file = decoded.decoder("bytes")({"bytes": encoded.getvalue(), "path": "photos/cat/1.png"})
    row = decoded.decoder("jpeg")({"jpeg": encoded.getvalue(), "path": "1.jpg", "label": 7})
    assert (file["label"], row["label"]) == ("cat", 7)
    assert file["image"].shape == (32, 32, 3) and (file["image"] == 99).all()


def digits(rows: int = 64) -> dict[str, FakeShard]:
    """Return shards with images of 8 × 8 pixels of two classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 2
    frame = pd.DataFrame(
        rng.random((rows, 64)) + labels[:, None], columns=[f"x{i}" for i in range(64)]
    ).assign(y=labels)
    return {"train": FakeShard(frame), "valid": FakeShard(frame)}


def test_every_tenth_epoch_has_a_checkpoint_from_which_the_loop_continues(tmp_path: Path) -> None:
    current, _ = small_table("multiclass")
    config = {"lr": 0.05, "batch_size": 16, "accumulate": 2, "epochs": 25, "checkpoint_every": 10}
    run = run_loop(checkpoints.train_func, config, current(_cached_objects={}), digits(), tmp_path)
    assert len(run.metrics) == 25 and list(run.checkpoints) == [10, 20]
    assert run.metrics[-1]["valid-mlogloss"] < 0.1 < run.metrics[0]["valid-mlogloss"]
    resumed = run_loop(
        checkpoints.train_func,
        config,
        current(_cached_objects={}),
        digits(),
        tmp_path,
        resume=run.checkpoints[20],
    )
    assert len(resumed.metrics) == 5


def test_accumulated_gradients_give_the_step_of_the_whole_batch(tmp_path: Path) -> None:
    current, _ = small_table("multiclass")
    gradients = []
    for accumulate in (1, 4):
        torch.manual_seed(0)
        config = {
            "lr": 0.05,
            "batch_size": 64,
            "accumulate": accumulate,
            "epochs": 3,
            "checkpoint_every": 10,
        }
        gradients.append(
            [
                m["valid-mlogloss"]
                for m in run_loop(
                    checkpoints.train_func, config, current(_cached_objects={}), digits(), tmp_path
                ).metrics
            ]
        )
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-4)


def test_the_line_of_a_checkpoint_predicts(tmp_path: Path) -> None:
    layer = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(layer.weight, 5.0)
    torch.nn.init.constant_(layer.bias, 10.0)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    points = linear.line(8)
    assert linear.load(str(tmp_path)).predict(points[["x"]]) == pytest.approx(
        points["y"].to_numpy()
    )


# ---- sweeps


def run(
    name: str, folder: Path, *overrides: str, trackers: str = "[jsonl]"
) -> tuple[sweeps.SweepResult, list[dict[str, float]]]:
    """Run two trials of a tutorial. Return the result, and the metrics of all reports."""
    given = ("limits.max_trials=2", f"trackers={trackers}", *overrides)
    result = sweeps.run(TUTORIALS / f"{name}.yaml", dir=folder, overrides=given)
    assert not result.trials["failed"] and sum(result.trials.values()) == 2
    assert result.bundle is not None
    events = map(json.loads, (result.dir / "events.jsonl").read_text().splitlines())
    return result, [event["metrics"] for event in events if event["type"] == "TrialReported"]


@pytest.mark.usefixtures("clean_ray")
class TestSweeps:
    pytestmark = integration

    def test_linear_regression_writes_json_lines_tensorboard_and_traces(
        self, tmp_path: Path
    ) -> None:
        result, reports = run(
            "linear", tmp_path, "space.params.profile=true", trackers="[jsonl, tensorboard]"
        )
        assert result.best is not None and result.bundle is not None
        assert len(reports) == 6 and min(
            report["valid-mse"] for report in reports
        ) == pytest.approx(result.best["value"], rel=1e-5)
        files = result.dir.glob("tensorboard/*/events.*")
        assert {file.parent.name for file in files} == {"0000", "0001"}
        traces = list(result.dir.rglob("*.pt.trace.json"))
        assert {trace.name.partition(".")[0] for trace in traces} == {"rank-0", "rank-1"} and len(
            traces
        ) == 4
        assert any(
            "aten::linear" in event.get("name", "")
            for event in json.loads(traces[0].read_text())["traceEvents"]
        )
        assert sweeps.load_bundle(result.bundle).predict(pd.DataFrame({"x": [0.5]})).shape == (1, 1)

    @pytest.mark.extended
    def test_the_vision_transformer_trains_on_one_and_on_two_workers(self, tmp_path: Path) -> None:
        result, reports = run(
            "vit",
            tmp_path,
            "scheduler.max_t=3",
            "space.params.epochs=3",
            "space.params.precision=bfloat16",
        )
        trials = sweeps.open(result.dir).trials
        assert sorted(trials["scaling.num_workers"]) == [1, 2]
        assert (
            all(
                0 <= report["valid-accuracy"] <= 1 < report["valid-mlogloss"] + 1
                for report in reports
            )
            and len(reports) > 3
        )
        assert result.bundle is not None
        images = np.stack(
            [np.asarray(Image.open(file)) for file in sorted(IMAGES.glob("plain/*.jpg"))]
        )
        predicted = sweeps.load_bundle(result.bundle).predict(pd.DataFrame({"image": list(images)}))
        assert len(predicted) == 40 and set(predicted["prediction"]) <= {
            "checks",
            "columns",
            "plain",
            "rings",
            "rows",
        }

    @pytest.mark.long
    def test_the_vision_transformer_reads_batches_of_ray_data(self, tmp_path: Path) -> None:
        # Ray Data has one of the two CPUs of this Ray
        half = "space.scaling.resources_per_worker.CPU=0.5"
        result, _ = run(
            "vit_ray_data", tmp_path, "scheduler.max_t=2", "space.params.epochs=2", half
        )
        assert result.best is not None
        assert result.best["value"] < 3

    @pytest.mark.long
    def test_each_trial_keeps_its_three_latest_checkpoints_and_its_best_one(
        self, tmp_path: Path
    ) -> None:
        result, _ = run("checkpoints", tmp_path)
        assert result.best is not None
        left = [sorted(folder.glob("checkpoint_*")) for folder in (result.dir / "trials").iterdir()]
        kept = [[int(folder.name.rpartition("_")[2]) for folder in folders] for folders in left]
        assert (
            all(steps[-3:] == [30, 40, 50] and len(steps) <= 4 for steps in kept)
            and result.best["value"] < 0.6
        )
        assert result.best["test"] is not None
