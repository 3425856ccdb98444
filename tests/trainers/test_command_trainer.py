"""The trainer `command` without Ray: where reports come from, checkpoints, signals, the
environment, and failures.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import psutil
import pytest

from sweeps.core.loop_context import UNREADABLE_LINE, Current
from sweeps.core.text.secrets import remember
from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers import _script
from sweeps.trainers._mlflow_files import MlflowFiles
from sweeps.trainers._script import TAIL
from sweeps.trainers._script_reports import (
    CALL,
    LINE,
    MLFLOW,
    ScriptReport,
    Sources,
    metrics_in,
    names_metric,
)
from sweeps.trainers._script_run import ScriptFailed
from sweeps.trainers.command import train_func
from tests.commands import REPO
from tests.waiting import wait_until

CALLS = """
import json, os, sys
from pathlib import Path
import sweeps

lr, steps = float(sys.argv[1]), int(sys.argv[2])
folder = Path(os.environ["SWEEPS_CHECKPOINT_DIR"])
file = folder / "state.json"
step, loss = json.loads(file.read_text()) if file.exists() else (0, 1.0)
while step < steps:
    step, loss = step + 1, loss * (1 - lr)
    file.write_text(json.dumps([step, loss]))
    sweeps.report({"loss": loss}, checkpoint=folder)
"""
# The same training with JSON lines. Two files must always have the same step.
LINES = """
import json, sys, time
from pathlib import Path

lr, steps, folder = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
step, loss = 0, 1.0
while step < steps:
    time.sleep(0.05)  # a step of training
    step, loss = step + 1, loss * (1 - lr)
    (folder / "state.json").write_text(json.dumps([step, loss]))
    (folder / "again.json").write_text(json.dumps([step, loss]))
    print(json.dumps({"loss": loss, "epoch": step}))
"""
COMMAND = ["python", "train.py", "{params.lr}", "{params.steps}", "{checkpoint_dir}"]
PARAMS = {"lr": 0.5, "steps": 4}
LOSSES = [0.5, 0.25, 0.125, 0.0625]


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    """Let scripts import this checkout of sweeps, and hide the variables of an outer run."""
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    for name in ("RANK", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def about(folder: Path, *words: str, **changed: Any) -> Current:
    """Return what the loop knows of a trial whose files are in `folder`. `words` is the command."""
    options = {"command": list(words or COMMAND), "grace_seconds": 5, "resume": True} | changed.pop(
        "options", {}
    )
    given = {
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
    return Current(**given | {"options": options} | changed)


def run(
    folder: Path,
    script: str,
    *words: str,
    name: str = "train.py",
    params: dict | None = None,
    shards: Any = None,
    **more,
) -> LoopRun:
    """Run a script in this process's loop.

    Arguments of `run_loop` are passed on, and all others change the `Current`.
    """
    (folder / name).write_text(script)
    keep = folder / "kept"
    keep.mkdir(exist_ok=True)
    ours = {key: more.pop(key) for key in ("resume", "stop_at") if key in more}
    return run_loop(
        train_func,
        PARAMS if params is None else params,
        about(folder, *words, **more),
        shards or {},
        keep,
        **ours,
    )


def losses(run: LoopRun) -> list[float]:
    return [metrics["loss"] for metrics in run.metrics]


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "trial" / "files" / "command.json").read_text())
    return content


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


# ---- reports


def test_calls_report_each_step_with_its_checkpoint(tmp_path, capfd):
    done = run(tmp_path, CALLS)
    assert losses(done) == LOSSES
    assert [
        json.loads((done.checkpoints[step] / "state.json").read_text()) for step in (1, 2, 3, 4)
    ] == [[step + 1, loss] for step, loss in enumerate(LOSSES)]
    assert record(tmp_path) == {
        "command": [
            sys.executable,
            "train.py",
            "0.5",
            "4",
            str(tmp_path / "trial" / "script_checkpoint"),
        ],
        "folder": str(tmp_path),
        "exit_code": 0,
    }
    assert not (tmp_path / "trial" / "script_checkpoint").exists()
    assert "the command ended with exit code 0" in capfd.readouterr().err


def test_lines_report_each_step_with_a_consistent_checkpoint(tmp_path, capfd):
    done = run(tmp_path, LINES, params={"lr": 0.01, "steps": 20})
    assert [metrics["epoch"] for metrics in done.metrics] == list(range(1, 21))
    # The checkpoint of the first line is not copied, because the line is held back. Nor is that of
    # a line that is read together with the next one.
    assert min(done.checkpoints) >= 2 and max(done.checkpoints) == 20
    for step, folder in done.checkpoints.items():
        first, second = (
            json.loads((folder / name).read_text()) for name in ("state.json", "again.json")
        )
        assert first == second and first[0] == step
    assert capfd.readouterr().out.count('"epoch"') == 20, "the output goes to the log"


def test_the_error_of_a_script_has_no_part_of_a_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "my-own-secret")
    remember("my-own-secret")
    code = (
        f"import os, sys\nsys.stderr.write(os.environ['MY_TOKEN'] + 'x' * {TAIL - 5})\nsys.exit(1)"
    )
    with pytest.raises(ScriptFailed) as failed:
        run(tmp_path, code)
    assert "ecret" not in str(failed.value)


def test_a_model_that_is_saved_after_the_last_line_is_one_more_report(tmp_path):
    done = run(tmp_path, LINES + "time.sleep(0.05)\n(folder / 'model').write_text('m')\n")
    assert losses(done) == [*LOSSES, LOSSES[-1]] and (done.checkpoints[5] / "model").exists()


def test_calls_count_and_the_same_metrics_as_lines_do_not(tmp_path):
    done = run(
        tmp_path,
        CALLS.replace(
            "    sweeps.report", '    print(json.dumps({"loss": loss}))\n    sweeps.report'
        ),
    )
    assert losses(done) == LOSSES


def test_a_call_after_lines_that_count_fails_the_trial(tmp_path):
    with pytest.raises(
        ValueError,
        match="its JSON lines on standard output with the objective's metric already count",
    ):
        run(tmp_path, LINES + "import sweeps\nsweeps.report(loss=0)\n")


def test_reports_of_a_shell_script_with_nested_metrics(tmp_path):
    script = (
        'echo starting\necho \'{"valid": {"loss": 0.5}}\'\nprintf \'{"valid": {"loss": 0.25}}\'\n'
    )
    done = run(
        tmp_path,
        script,
        "sh",
        "run.sh",
        name="run.sh",
        metric="valid.loss",
        asked=("valid.loss",),
        params={},
    )
    assert done.metrics == [{"valid": {"loss": 0.5}}, {"valid": {"loss": 0.25}}]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"loss": 1}', {"loss": 1}),
        (b'{"loss": "low"}', None),
        (b'{"loss": true}', None),
        (b"loss 1", None),
        (b"", None),
    ],
)
def test_a_line_is_a_report_if_it_is_json_with_a_number_for_the_metric(line, expected):
    metrics = metrics_in(line, "loss")
    assert (metrics is not None) == bool(expected) and (
        expected in (True, None) or metrics == expected
    )
    assert metrics_in(line, None) is None


@pytest.mark.parametrize(
    ("line", "metric", "named"),
    [
        (b'{"loss": null}', "loss", True),
        (b'{"valid": {"loss": "low"}}', "valid.loss", True),
        (b"{'loss': 0.5}", "loss", True),
        (b'{"loss": 0.5, "epo', "loss", True),
        (b'{"valid": {"loss": 0.', "valid.loss", True),
        (b'{"optimizer": {"loss": "mse"}}', "loss", False),
        (b'{"note": "no \\"loss\\" here"}', "loss", False),
        (b"{lossless: 0.5}", "loss", False),
        (b'{"a":' * 100_000, "loss", False),
    ],
)
def test_a_line_that_names_the_metric_and_cannot_be_read(line, metric, named):
    assert metrics_in(line, metric) is None and names_metric(line, metric) is named


def test_an_unreadable_line_is_a_step_with_nan_that_the_log_names(tmp_path, capfd):
    lines = ['{"loss": 0.5}', '{"loss": null}', '{"epoch": 3}', '{"loss": 0.2}', "{'loss': 0.1}"]
    done = run(tmp_path, f"print({chr(10).join(lines)!r})")
    unread = {"loss": pytest.approx(math.nan, nan_ok=True), UNREADABLE_LINE: 1.0}
    assert done.metrics == [{"loss": 0.5}, unread, {"loss": 0.2}, unread]
    log = capfd.readouterr().err
    assert "this line has no number for the objective: {'loss': 0.1}" in log and "epoch" not in log


def test_a_line_that_is_too_long_is_a_step_with_nan(tmp_path, monkeypatch):
    monkeypatch.setattr(_script, "LONGEST_LINE", 100)
    monkeypatch.setattr(_script, "CHUNK", 64)
    done = run(
        tmp_path,
        "import json\n"
        "for size in (1, 100, 1000, 1): print(json.dumps({'loss': 2, 'x': 'x' * size}))",
    )
    assert [math.isnan(loss) for loss in losses(done)] == [False, True, True, False]


def test_lines_that_cannot_be_read_are_no_source_of_their_own(tmp_path):
    def reports(*given: tuple[str, bool]) -> list[int]:
        chosen, counted = Sources(), []
        for number, (source, readable) in enumerate(given):
            unread = {} if readable else {UNREADABLE_LINE: 1.0}
            counted += chosen.add(ScriptReport(source, {"n": number, **unread}))
        return [report.metrics["n"] for report in [*counted, *chosen.end()]]

    unread = (LINE, False)
    assert reports(unread, unread) == []
    assert reports(unread, (LINE, True)) == [0, 1]
    assert reports(unread, (LINE, True), unread, (LINE, True), unread) == [0, 1, 2, 3, 4]
    assert reports(unread, (MLFLOW, True), unread, (MLFLOW, True)) == [1, 3]
    assert reports(unread, (CALL, True), unread, (CALL, True)) == [1, 3]
    with pytest.raises(ScriptFailed, match="has not reported `loss`"):
        run(tmp_path, "print('{\"loss\": null}')")


def test_the_best_source_of_reports_counts():
    def reports(*sources: str) -> list[int]:
        chosen, counted = Sources(), []
        for number, source in enumerate(sources):
            counted += chosen.add(ScriptReport(source, {"n": number}))
        return [report.metrics["n"] for report in [*counted, *chosen.end()]]

    assert reports(LINE) == [0] and reports(MLFLOW) == [0] and reports() == []
    assert reports(LINE, LINE, LINE) == [0, 1, 2]
    assert reports(LINE, CALL, LINE, CALL) == [1, 3]
    assert reports(MLFLOW, LINE, MLFLOW, LINE) == [1, 3]
    assert reports(LINE, MLFLOW, LINE) == [0, 2]
    with pytest.raises(ValueError, match=r"call sweeps.report from the first step on, or never"):
        reports(LINE, LINE, CALL)


# ---- MLflow


def log(folder: Path, name: str, *lines: str, run: str = "a") -> None:
    file = folder / "0" / run / "metrics" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.writelines(f"{line}\n" for line in lines)


def test_each_value_of_the_metric_in_mlflows_files_is_a_report(tmp_path):
    files = MlflowFiles(tmp_path, "valid/loss", ("valid/loss", "acc"))
    assert list(files.new_reports(False)) == []
    log(tmp_path, "valid/loss", "1000 0.5 1")
    assert list(files.new_reports(False)) == [], (
        "the report waits for `acc`, which the space file names too"
    )
    log(tmp_path, "acc", "1001 0.9 1")
    assert list(files.new_reports(False)) == [{"valid/loss": 0.5, "acc": 0.9}]
    log(tmp_path, "valid/loss", "1002 0.4 2", "1003 nan 3", "1004 0.2 4")
    assert [metrics["valid/loss"] for metrics in files.new_reports(False)] == [
        0.4,
        pytest.approx(float("nan"), nan_ok=True),
    ]
    with (tmp_path / "0" / "a" / "metrics" / "valid" / "loss").open("a") as file:
        file.write("1005 0.1")
    assert list(files.new_reports(True)) == [{"valid/loss": 0.2}], (
        "a line that is not complete is not read"
    )


def test_a_value_that_mlflow_logs_again_with_a_model_is_one_report(tmp_path):
    files = MlflowFiles(tmp_path, "loss", ("loss",))
    log(tmp_path, "loss", "1000 0.5 0", "1000 0.5 0 m-1", "1001 0.5 0", "1001 0.4 1", "1002 0.4 1")
    assert [metrics["loss"] for metrics in files.new_reports(False)] == [0.5, 0.5, 0.4, 0.4]
    log(tmp_path, "loss", "1002 0.4 1", "1001 0.4 1", "1003 0.3 2")
    assert [metrics["loss"] for metrics in files.new_reports(True)] == [0.3]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_a_script_logs_with_mlflow_is_reported_and_copied_to_the_run(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.delenv(
        "MLFLOW_EXPERIMENT_ID", raising=False
    )  # MLflow sets it if an earlier test has selected an experiment.
    script = """
import mlflow, pathlib
mlflow.set_experiment("mine")
with mlflow.start_run(run_name="script"):
    mlflow.log_params({"optimizer": "sgd"})
    mlflow.set_tag("team", "a")
    for step in (10, 20, 30):
        mlflow.log_metrics({"loss": 1 / step, "acc": step}, step=step)
    mlflow.log_metric("test/acc", 0.75)
    pathlib.Path("plot.txt").write_text("plot")
    mlflow.log_artifact("plot.txt")
"""
    monkeypatch.chdir(tmp_path)
    done = run(tmp_path, script)
    assert done.metrics == [{"loss": 1 / step, "acc": step} for step in (10, 20, 30)]
    mlflow_run = mlflow.search_runs(search_all_experiments=True, output_format="list")[0]
    assert (mlflow_run.data.params, mlflow_run.data.tags["team"], mlflow_run.data.metrics) == (
        {"optimizer": "sgd"},
        "a",
        {"test/acc": 0.75},
    )
    assert [file.path for file in mlflow.MlflowClient().list_artifacts(mlflow_run.info.run_id)] == [
        "plot.txt"
    ]


# ---- the environment


def test_the_environment_is_that_of_torchrun(tmp_path, monkeypatch):
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


def test_prepared_data_is_offered_as_parquet(tmp_path):
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
def test_resumed_script_gets_copy_of_checkpoint(tmp_path, resumes, expected):
    checkpoint = run(tmp_path, CALLS).checkpoints[2]
    before = (checkpoint / "state.json").read_text()
    assert losses(run(tmp_path, CALLS, resume=checkpoint, options={"resume": resumes})) == expected
    assert (checkpoint / "state.json").read_text() == before


# ---- the end


STOPS = """
import os, signal, subprocess, sys, time
from pathlib import Path
import sweeps

child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
Path("pids").write_text(f"{os.getpid()} {child.pid}")

def stop(*args):
    Path("terminated").touch()
    if IGNORES:
        return
    child.kill()
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
while True:
    sweeps.report(loss=1)
    time.sleep(0.01)
"""


def alive(folder: Path) -> list[int]:
    return [pid for pid in map(int, (folder / "pids").read_text().split()) if runs(pid)]


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("ignores", "code"), [(False, 0), (True, -9)])
def test_a_stopped_script_gets_sigterm_and_after_the_grace_time_sigkill(tmp_path, ignores, code):
    done = run(
        tmp_path,
        f"IGNORES = {ignores}\n{STOPS}",
        stop_at=2,
        options={"grace_seconds": 1.0 if ignores else 30.0},
    )
    assert (
        len(done.metrics) == 2
        and (tmp_path / "terminated").exists()
        and record(tmp_path)["exit_code"] == code
    )
    wait_until(lambda: not alive(tmp_path), 5, "the processes to end")


def test_a_paused_script_that_is_stopped_gets_sigterm(tmp_path):
    script = LINES.replace("import json, sys", "import signal, json, sys").replace(
        "step, loss = 0", "signal.signal(signal.SIGTERM, lambda *a: sys.exit(5))\nstep, loss = 0"
    )
    assert len(run(tmp_path, script, stop_at=3).metrics) == 3
    assert record(tmp_path)["exit_code"] == 5


def test_processes_that_a_script_leaves_behind_are_killed(tmp_path):
    script = """
import subprocess
child = subprocess.Popen(["sh", "-c", "while :; do echo still here >&2; sleep 0.01; done"])
open("pids", "w").write(str(child.pid))
print('{"loss": 1}', flush=True)
"""
    assert losses(run(tmp_path, script)) == [1]
    wait_until(lambda: not alive(tmp_path), 5, "the child to end")
    with pytest.raises(ScriptFailed, match="ended by the signal SIGSEGV"):
        run(tmp_path, f"import os\nos.kill(os.getpid(), {int(signal.SIGSEGV)})\n")


def test_exit_code_fails_trial_with_end_of_standard_error(tmp_path):
    script = (
        "import sys\nprint('x' * 10**6, file=sys.stderr)\n"
        "print('{\"loss\": 1}')\nraise ZeroDivisionError('by zero')\n"
    )
    with pytest.raises(ScriptFailed) as e:
        run(tmp_path, script)
    text = str(e.value)
    assert (
        "train.py 0.5 4" in text
        and "ended with exit code 1; its last lines on standard error:\n" in text
    )
    assert text.endswith("ZeroDivisionError: by zero") and len(text) < 20_000
    assert record(tmp_path)["exit_code"] == 1


def test_script_without_report_fails_with_three_ways_to_report(tmp_path):
    with pytest.raises(
        ScriptFailed,
        match=r"has not reported `loss`; call sweeps.report\(loss=...\), print a line of JSON"
        r".*; its output has lines such as `loss: 1`, which sweeps does not read$",
    ):
        run(tmp_path, "print('epoch 1 | val_loss: 3 | loss: 1')\nprint('done')")


def test_a_script_that_prints_another_metric_gets_a_hint(tmp_path):
    with pytest.raises(
        ScriptFailed,
        match=r"has not reported `loss`; .*; its last line of JSON has `epoch` and `valid.lose`$",
    ):
        run(tmp_path, 'print(\'{"epoch": 1, "valid": {"lose": 1}, "note": "x"}\')')


def test_a_program_that_does_not_exist_fails_the_trial(tmp_path):
    with pytest.raises(ScriptFailed, match="`pyton` cannot be started: No such file or directory"):
        run(tmp_path, "", "pyton", "train.py")


WORKER = """
import sys
from pathlib import Path
from tests.trainers.test_command_trainer import STOPS, run

run(Path(sys.argv[1]), f"IGNORES = True\\n{STOPS}")
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("with_children", [False, True], ids=["alone", "with its children"])
def test_nothing_is_left_when_the_worker_is_killed(tmp_path, with_children):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(REPO)}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)], env=environment, cwd=REPO
    )
    try:
        checkpoints = tmp_path / "trial" / "script_checkpoint"
        wait_until(
            lambda: (
                (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2
            ),
            60,
            "the script to start",
        )
        assert len(alive(tmp_path)) == 2 and checkpoints.exists()
    finally:
        for child in psutil.Process(worker.pid).children() if with_children else ():
            child.kill()  # Ray does so before it ends a worker.
        worker.kill()
        worker.wait()
    wait_until(lambda: not alive(tmp_path), 10, "the script and its child to end")
    wait_until(
        lambda: not [*temporary.glob("sweeps-script-*"), *checkpoints.parent.glob("script_*")],
        10,
        "the folders to be removed",
    )
