"""The trainer `command` without Ray: where reports come from, checkpoints, signals, the
environment, and failures.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers.command import train_func
from tests.trainers.command_scripts import CALLS, COMMAND, LOSSES, PARAMS, about, losses, run

pytestmark = pytest.mark.usefixtures("script_environment")


class TestCommand(TrainerTests):
    """The suite for all trainers, on a script that calls `sweeps.report`."""

    module = "sweeps.trainers.command"
    params = PARAMS
    options: ClassVar[dict[str, Any]] = {"command": COMMAND}
    task = "regression"
    metric = "loss"

    # The weights are a column of the script's data; see
    # `test_prepared_data_is_offered_as_parquet`.
    test_weights_count = None  # type: ignore[assignment]

    def run(
        self,
        folder: Path,
        *,
        resume: Path | None = None,
        stop_at: int | None = None,
        **changed: Any,
    ) -> LoopRun:
        outer = folder.with_name(f"{folder.name}-script")
        outer.mkdir(exist_ok=True)
        (outer / "train.py").write_text(CALLS)
        return run_loop(
            train_func,
            dict(self.params),
            about(outer, **changed),
            {},
            folder,
            resume=resume,
            stop_at=stop_at,
        )


# ---- the environment


def test_the_environment_is_that_of_torchrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "of the sweep's parent")
    script = (
        "import json, os\nopen('env.json', 'w').write(json.dumps(dict(os.environ)))\n"
        "print('{\"loss\": 1}')\n"
    )
    run(tmp_path, script)
    env = json.loads((tmp_path / "env.json").read_text())
    expected = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
        "NODE_RANK": "0",
    }
    assert (
        expected.items() <= env.items()
        and env["MASTER_ADDR"] == "127.0.0.1"
        and 1024 <= int(env["MASTER_PORT"]) < 2**16
    )
    assert "MLFLOW_RUN_ID" not in env and env["MLFLOW_TRACKING_URI"].startswith("file:///")
    assert "SWEEPS_DATA_DIR" not in env


def test_prepared_data_is_offered_as_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [0, 1]})
    script = (
        "import os, sys, pandas as pd\n"
        "rows = {name: pd.read_parquet(f'{sys.argv[1]}/{name}.parquet') for name in ('train', "
        "'valid')}\n"
        "assert sys.argv[1] == os.environ['SWEEPS_DATA_DIR']\n"
        "print('{\"loss\": %d}' % (len(rows['train']) * 10 + rows['valid']['y'].sum()))\n"
    )
    shards = {"train": FakeShard(frame), "valid": FakeShard(frame)}
    done = run(
        tmp_path,
        script,
        "python",
        "train.py",
        "{data_dir}",
        shards=shards,
        check=frame.drop(columns="y"),
    )
    assert losses(done) == [21]


# ---- resume


@pytest.mark.parametrize(("resumes", "expected"), [(True, LOSSES[2:]), (False, LOSSES)])
def test_resumed_script_gets_copy_of_checkpoint(
    tmp_path: Path, resumes: bool, expected: Any
) -> None:
    checkpoint = run(tmp_path, CALLS).checkpoints[2]
    before = (checkpoint / "state.json").read_text()
    assert losses(run(tmp_path, CALLS, resume=checkpoint, options={"resume": resumes})) == expected
    assert (checkpoint / "state.json").read_text() == before
