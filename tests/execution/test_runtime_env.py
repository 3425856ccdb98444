"""The `runtime_env` of a space file reaches the workers and the process that prepares data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.errors import InputError
from sweeps.execution.cluster import shipped_code
from sweeps.space import load
from tests.commands import command

LOOP = """
import os
from pathlib import Path

import ray.train


class Shift:
    def fit(self, frame):
        import helper

        self.by = helper.SHIFT + len(os.environ["TOKEN"])
        return self

    def transform(self, frame):
        return frame + self.by


def train(config):
    import helper

    ray.train.report(
        {
            "loss": float(os.environ.get("TOKEN") == "secret-of-mine"),
            "shift": helper.SHIFT,
            "file": float(Path("settings.txt").read_text()),
            "mean": float(ray.train.get_dataset_shard("valid")\
.materialize().to_pandas()["a"].mean()),
            "pid": os.getpid(),
        }
    )
    os.environ["TOKEN"] = "changed"
    os.chdir("/")


def needs_package(config):
    import roman

    ray.train.report({"loss": roman.fromRoman("XIV")})
"""


def space_of(folder: Path, runtime_env: str, loop: str = "train", data: bool = True) -> Path:
    """Write a space file of two trials on one worker, its loop, and a package and a folder for
    `runtime_env`.
    """
    for name in ("libs/helper", "files"):
        (folder / name).mkdir(parents=True)
    (folder / "my_loop.py").write_text(LOOP)
    (folder / "libs/helper/__init__.py").write_text("SHIFT = 100\n")
    (folder / "files/settings.txt").write_text("7\n")
    (folder / "rows.csv").write_text("a\n" + "1\n" * 20)
    file = folder / "space.yaml"
    file.write_text(
        f"""name: elsewhere
trainer: {{loop: "my_loop:{loop}"}}
{f"data: {{train: {folder}/rows.csv, valid: 0.5}}" if data else ""}
objective: {{metric: loss, goal: maximize}}
limits: {{max_trials: 2, max_concurrent_trials: 1}}
runtime_env: {runtime_env}
trackers: [jsonl]
space: {{{'preprocessor: ["my_loop:Shift"], ' if data else ""}params: {{a: {{grid: [1, 2]}}}}}}
"""
    )
    return file


def test_on_a_cluster_it_is_sent_with_the_code(tmp_path: Path) -> None:
    section = "{env_vars: {A: b}, pip: [roman], py_modules: [libs/helper], working_dir: files}"
    space, stage = load(space_of(tmp_path / "code", section)), tmp_path / "stage"
    sent = shipped_code.environment(space, (tmp_path / "code",), stage)
    assert (sent["env_vars"], sent["pip"], sent["working_dir"]) == (
        {"A": "b"},
        ["roman"],
        str(stage),
    )
    assert [Path(module).name for module in sent["py_modules"]] == ["sweeps", "helper"]
    assert {"settings.txt", "my_loop.py"} <= {file.name for file in stage.iterdir()}


def test_with_an_image_no_code_is_sent(tmp_path: Path) -> None:
    space, stage = (
        load(space_of(tmp_path / "code", "{env_vars: {A: b}, image_uri: 'me/image:1'}")),
        tmp_path / "stage",
    )
    sent = shipped_code.environment(space, (tmp_path / "code",), stage)
    assert (
        sent
        == {"env_vars": {"A": "b"}, "image_uri": "me/image:1"}
        == shipped_code.with_job_modules(sent)
    )


def test_on_a_cluster_the_working_dir_is_a_folder(tmp_path: Path) -> None:
    space = load(space_of(tmp_path / "code", "{working_dir: 's3://b/c.zip'}"))
    with pytest.raises(
        InputError,
        match=r":6:28: runtime_env.working_dir: must be a folder on this machine, because",
    ):
        shipped_code.environment(space, (tmp_path / "code",), tmp_path / "stage")


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_a_process_that_is_connected_to_ray_cannot_set_it_up(
    clean_ray: Any, tmp_path: Path
) -> None:
    with pytest.raises(
        InputError,
        match=r":6:1: runtime_env: this process is already connected to Ray, so Ray cannot set up "
        r"`runtime_env`; pass `runtime_env` to",
    ):
        sweeps.run(space_of(tmp_path, "{env_vars: {A: b}}"), dir=tmp_path / "runs")


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(240)
def test_variables_modules_and_files_reach_each_trial_and_preprocessor(tmp_path: Path) -> None:
    section = "{env_vars: {TOKEN: secret-of-mine}, py_modules: [libs/helper], working_dir: files}"
    done = command("run", space_of(tmp_path, section), "--dir", tmp_path / "runs", "--json")
    out, err = done.communicate(timeout=200)
    assert done.returncode == 0, err
    folder = Path(json.loads(out)["dir"])
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    first, second = (line["metrics"] for line in lines if line["type"] == "TrialReported")
    assert first == second, (
        "the second trial, on the same worker, has the same variables and working directory"
    )
    assert (first["loss"], first["shift"], first["file"], first["mean"]) == (
        1,
        100,
        7,
        1 + 100 + len("secret-of-mine"),
    )
    assert "secret-of-mine" in (folder / "space.yaml").read_text(), "a resume needs it"
    for name in ("report.md", "report.html", "events.jsonl", "result.json"):
        assert "secret-of-mine" not in (folder / name).read_text(), name
