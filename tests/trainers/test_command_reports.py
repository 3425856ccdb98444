"""Reports of a script that the trainer `command` runs: calls, JSON lines and MLflow."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.loop_context import UNREADABLE_LINE
from sweeps.core.text.secrets import remember
from sweeps.trainers import _script
from sweeps.trainers._mlflow_files import MlflowFiles
from sweeps.trainers._script import TAIL_BYTES
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
from tests.trainers.command_scripts import CALLS, LINES, LOSSES, losses, record, run

pytestmark = pytest.mark.usefixtures("script_environment")


def test_calls_report_each_step_with_its_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_lines_report_each_step_with_a_consistent_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_the_error_of_a_script_has_no_part_of_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "my-own-secret")
    remember("my-own-secret")
    text = f"os.environ['MY_TOKEN'] + 'x' * {TAIL_BYTES - 5}"
    code = f"import os, sys\nsys.stderr.write({text})\nsys.exit(1)"
    with pytest.raises(ScriptFailed) as failed:
        run(tmp_path, code)
    assert "ecret" not in str(failed.value)


def test_a_model_that_is_saved_after_the_last_line_is_one_more_report(tmp_path: Path) -> None:
    done = run(tmp_path, LINES + "time.sleep(0.05)\n(folder / 'model').write_text('m')\n")
    assert losses(done) == [*LOSSES, LOSSES[-1]] and (done.checkpoints[5] / "model").exists()


def test_calls_count_and_the_same_metrics_as_lines_do_not(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        CALLS.replace(
            "    sweeps.report", '    print(json.dumps({"loss": loss}))\n    sweeps.report'
        ),
    )
    assert losses(done) == LOSSES


def test_a_call_after_lines_that_count_fails_the_trial(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match="its JSON lines on standard output with the objective's metric already count",
    ):
        run(tmp_path, LINES + "import sweeps\nsweeps.report(loss=0)\n")


def test_reports_of_a_shell_script_with_nested_metrics(tmp_path: Path) -> None:
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
    reported: list[Any] = done.metrics
    assert reported == [{"valid": {"loss": 0.5}}, {"valid": {"loss": 0.25}}]


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
def test_a_line_is_a_report_if_it_is_json_with_a_number_for_the_metric(
    line: bytes, expected: Any
) -> None:
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
def test_a_line_that_names_the_metric_and_cannot_be_read(
    line: Any, metric: str, named: bool
) -> None:
    assert metrics_in(line, metric) is None and names_metric(line, metric) is named


def test_an_unreadable_line_is_a_step_with_nan_that_the_log_names(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"loss": 0.5}', '{"loss": null}', '{"epoch": 3}', '{"loss": 0.2}', "{'loss': 0.1}"]
    done = run(tmp_path, f"print({chr(10).join(lines)!r})")
    unread = {"loss": pytest.approx(math.nan, nan_ok=True), UNREADABLE_LINE: 1.0}
    assert done.metrics == [{"loss": 0.5}, unread, {"loss": 0.2}, unread]
    log = capfd.readouterr().err
    assert "this line has no number for the objective: {'loss': 0.1}" in log and "epoch" not in log


def test_a_line_that_is_too_long_is_a_step_with_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_script, "LONGEST_LINE", 100)
    monkeypatch.setattr(_script, "CHUNK", 64)
    done = run(
        tmp_path,
        "import json\n"
        "for size in (1, 100, 1000, 1): print(json.dumps({'loss': 2, 'x': 'x' * size}))",
    )
    assert [math.isnan(loss) for loss in losses(done)] == [False, True, True, False]


def test_lines_that_cannot_be_read_are_no_source_of_their_own(tmp_path: Path) -> None:
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


def test_the_best_source_of_reports_counts() -> None:
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


def log(folder: Path, name: str, *lines: str, run: str = "a") -> None:
    file = folder / "0" / run / "metrics" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.writelines(f"{line}\n" for line in lines)


def test_each_value_of_the_metric_in_mlflows_files_is_a_report(tmp_path: Path) -> None:
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


def test_a_value_that_mlflow_logs_again_with_a_model_is_one_report(tmp_path: Path) -> None:
    files = MlflowFiles(tmp_path, "loss", ("loss",))
    log(tmp_path, "loss", "1000 0.5 0", "1000 0.5 0 m-1", "1001 0.5 0", "1001 0.4 1", "1002 0.4 1")
    assert [metrics["loss"] for metrics in files.new_reports(False)] == [0.5, 0.5, 0.4, 0.4]
    log(tmp_path, "loss", "1002 0.4 1", "1001 0.4 1", "1003 0.3 2")
    assert [metrics["loss"] for metrics in files.new_reports(True)] == [0.3]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_a_script_logs_with_mlflow_is_reported_and_copied_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
