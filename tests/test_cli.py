"""The texts that commands print, without running a sweep."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps.core.files.result_file import read_result, result_error
from sweeps.core.result import SweepResult
from sweeps.core.text.secrets import remember
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from sweeps.study import record_reader
from sweeps.terminal import result_text, sweep_text
from tests.commands import REPO


def result(**changes: Any) -> SweepResult:
    fields = {
        "sweep": "x-1",
        "dir": Path("/runs/x-1"),
        "trials": {"completed": 3, "pruned": 2, "failed": 0},
        "best": {
            "trial": "0002",
            "value": 0.123456789,
            "test": 0.2,
            "params": {"eta": 0.0123456789, "kind": "a"},
            "preprocessor": "StandardScaler",
            "scaling": {"num_workers": 2, "resources_per_worker": {"CPU": 1.0, "GPU": 0.5}},
        },
        "bundle": Path("/runs/x-1/bundle"),
        "checkpoint": None,
        "mlflow": {
            "tracking_uri": "sqlite:////runs/mlflow.db",
            "experiment": "x",
            "parent_run": "abc",
        },
        "fits": 2,
        "seconds": 75.4,
    }
    return SweepResult(**{**fields, **changes})


def test_the_end_shows_the_best_trial_the_bundle_and_the_next_commands() -> None:
    text = result_text.format_result(result())
    assert "x-1: 3 completed, 2 pruned in 1:15; 2 preprocessors fitted" in text
    assert (
        "best trial 0002: 0.123457, test 0.2" in text
        and "2 workers × 1 CPU, 0.5 GPU" in text
        and "eta           0.0123457" in text
    )
    assert (
        "sweeps predict /runs/x-1/bundle" in text
        and "sweeps ui --dir /runs" in text
        and "sweeps show /runs/x-1" in text
    )


def test_a_note_of_a_result_shows_no_secret() -> None:
    remember("my-own-secret")
    noted = result(notes=("no my-own-secret",)).with_note("my-own-secret")
    assert noted.to_json()["notes"] == ["no ***", "***"]


def test_the_end_names_the_report_if_there_is_one(tmp_path: Path) -> None:
    assert "report.html" not in result_text.format_result(result(dir=tmp_path))
    (tmp_path / "report.html").touch()
    assert (
        f"\nfolder  {tmp_path}\nreport  {tmp_path / 'report.html'}\n"
        in result_text.format_result(result(dir=tmp_path))
    )


def test_a_verb_that_is_a_file_is_explained() -> None:
    done = CliRunner().invoke(cli.main, ["report", "x"], prog_name="sweeps")
    assert (
        done.exit_code == 2
        and "no command `report`: the report of a sweep is `report.html` in its folder, "
        in done.output
    )
    assert (
        "No such command 'repot'"
        in CliRunner().invoke(cli.main, ["repot"], prog_name="sweeps").output
    )


def best_of(shown: SweepResult) -> dict[str, Any]:
    assert shown.best is not None
    return shown.best


def test_the_result_has_the_rows_the_size_and_the_speed_of_the_model() -> None:
    refit = {"on": ["train", "valid"], "rows": 4177, "steps": 9}
    best = best_of(result()) | {"refit": refit, "bytes": 1_250_000, "rows_per_second": 38_412.0}
    lines = result_text.format_result(
        result(best=best, bundle=Path("/runs/x-1/bundle"))
    ).splitlines()
    facts = "trained on 4,177 rows: train and valid; 1.2 MB; predicts 38,000 rows a second"
    assert f"bundle  /runs/x-1/bundle ({facts})" in lines


def test_a_stored_result_keeps_keys_that_it_does_not_know(tmp_path: Path) -> None:
    best = best_of(result()) | {"later": 3}
    (tmp_path / "result.json").write_text(result(best=best).as_text())
    stored = read_result(tmp_path)
    assert stored is not None and best_of(stored)["later"] == 3


def test_the_folder_of_a_sweep_is_no_bundle(tmp_path: Path) -> None:
    content = result().to_json() | {"bundle": "", "checkpoint": ""}
    (tmp_path / "result.json").write_text(json.dumps(content))
    stored = read_result(tmp_path)
    assert stored is not None and stored.bundle is None and stored.checkpoint is None


@pytest.mark.parametrize("key", ["bytes", "rows_per_second"])
def test_a_size_or_speed_that_is_no_number_makes_a_result_invalid(tmp_path: Path, key: str) -> None:
    shown = result(best=best_of(result()) | {key: "many"})
    (tmp_path / "result.json").write_text(shown.as_text())
    assert key in (result_error(tmp_path) or "")


def test_data_dimensions_are_part_of_a_configuration(tmp_path: Path) -> None:
    best = best_of(result()) | {
        "data": {"train": "a.parquet", "drop": ("hue",), "rows": 0.5},
        "values": {"loss": 1.0},
    }
    text = result_text.format_result(result(best=best))
    assert (
        "data.train    a.parquet" in text
        and "data.drop     ['hue']" in text
        and "data.rows     0.5" in text
    )
    front = result_text.format_result(result(front=[best]))
    assert "data.train  data.drop  data.rows  preprocessor" in front
    loop = SearchLoop.open(tmp_path, load(REPO / "search_spaces" / "conditional.yaml"))
    trial = loop.ask()
    study = record_reader.read(tmp_path)
    assert trial is not None and study is not None
    recorded = study.trials[0]
    assert (
        recorded.trial.data
        == recorded.to_json()["data"]
        == {"drop": list(trial.data["drop"]), "rows": trial.data["rows"]}
    )
    assert f"data.rows {trial.data['rows']:g}" in " ".join(
        sweep_text.format_trial(recorded, "running").split()
    )


def test_the_end_of_a_sweep_without_a_bundle_gives_the_reason() -> None:
    text = result_text.format_result(result(bundle=None, checkpoint=Path("/runs/x-1/checkpoint")))
    assert "has no `load`" in text
    text = result_text.format_result(
        result(
            bundle=None,
            notes=("2 trials failed; the error of the first one, trial 0001: ZeroDivisionError",),
            reason="limits.timeout",
        )
    )
    assert "note: 2 trials failed" in text and "(ended early: limits.timeout)" in text


def test_values_that_are_not_finite_are_null_in_json_and_can_be_shown(tmp_path: Path) -> None:
    best = best_of(result()) | {"value": math.inf, "test": math.nan, "metrics": {"loss": -math.inf}}
    text = result(best=best).as_text()
    parsed = json.loads(text, parse_constant=pytest.fail)
    assert (parsed["best"]["value"], parsed["best"]["test"], parsed["best"]["metrics"]["loss"]) == (
        None,
        None,
        None,
    )
    (tmp_path / "result.json").write_text(text)
    stored = read_result(tmp_path)
    assert stored is not None
    assert "best trial 0002: not finite" in result_text.format_result(stored)


def test_the_schema_is_json_of_the_keys_a_file_may_have() -> None:
    done = CliRunner().invoke(cli.main, ["schema"])
    assert done.exit_code == 0 and {"data", "objective", "space"} <= set(
        json.loads(done.stdout)["properties"]
    )


def test_freed_checkpoints_are_shown(tmp_path: Path) -> None:
    assert "freed 1.0 GB: 1 checkpoint of 1 trial;" in result_text.format_result(
        result(freed={"checkpoints": 1, "trials": 1, "bytes": 10**9, "left": 0})
    )
    freed = {"checkpoints": 12, "trials": 9, "bytes": 5_200_000_000, "left": 1_100_000_000}
    assert (
        "freed 5.2 GB: 12 checkpoints of 9 trials; the other checkpoints use 1.1 GB"
        in result_text.format_result(result(freed=freed))
    )
    nothing = dict.fromkeys(freed, 0)
    assert result_text.format_result(result(freed=nothing)) == result_text.format_result(
        result()
    ), "no line if nothing was deleted"
    shown = result(freed=freed, dir=tmp_path, bundle=None)
    (tmp_path / "result.json").write_text(shown.as_text())
    assert shown.to_json()["freed"] == freed
    assert read_result(tmp_path) == shown


@pytest.mark.parametrize("uri", ["sqlite:////runs/mlflow.db", "sqlite:////my runs/a.db", None])
@pytest.mark.parametrize("bundle", [Path("/runs/x-1/bundle"), None])
@pytest.mark.parametrize("reason", ["interrupted", None])
def test_the_next_commands_exist(uri: str | None, bundle: Path | None, reason: str | None) -> None:
    mlflow = {} if uri is None else result().mlflow | {"tracking_uri": uri}
    text = result_text.format_result(result(mlflow=mlflow, bundle=bundle, reason=reason))
    lines = [line.strip() for line in text.partition("\nnext:\n")[2].splitlines()]
    assert lines
    for line in lines:
        program, verb, *arguments = shlex.split(line, comments=True)
        if program.endswith("sweeps"):
            cli.main.commands[verb].make_context(verb, arguments)
        else:
            assert [program, verb, *arguments[:1]] == ["mlflow", "server", "--backend-store-uri"]
            assert arguments[1:] == [uri]


def test_the_next_command_can_be_pasted() -> None:
    text = result_text.format_result(
        result(dir=Path("/my runs/x-1"), bundle=Path("/my runs/x-1/bundle"))
    )
    assert "sweeps show '/my runs/x-1'" in text and "predict '/my runs/x-1/bundle' rows.csv" in text


@pytest.mark.parametrize(
    "args, code, said",
    [
        (["validate", "absent.yaml"], 2, "absent.yaml"),
        (["run", "absent.yaml"], 2, "absent.yaml"),
        (["export", "absent"], 2, "is neither a sweep's folder nor"),
        (["predict", "absent", "rows.csv"], 2, "absent: is neither a bundle, a sweep's folder nor"),
        (["predict", "absent/bundle", "rows.csv"], 2, "rows.csv: the file does not exist"),
        (["serve", "latest"], 2, "latest: is neither a bundle, a sweep's folder nor"),
        (["run"], 2, "Missing argument"),
        (["run", "absent.yaml", "--minutes", "0"], 2, "'--minutes': 0.0 is not in the range x>0"),
        (["rnu"], 2, "No such command"),
    ],
)
def test_bad_input_gives_one_line_and_an_exit_code(
    args: Any, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.main, args)
    assert done.exit_code == code and said in done.output and "Traceback" not in done.output, (
        done.output
    )
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_winner_that_cannot_be_exported_is_still_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sweeps.core.errors import BundleError
    from sweeps.runs import api

    def run(*args: Any, **named: Any) -> None:
        error = BundleError(
            "/runs/x-1/bundle: the bundle was not written: OSError: cannot load this"
        )
        error.result = result(bundle=None)
        raise error

    monkeypatch.setattr(api, "run", run)
    done = CliRunner().invoke(cli.main, ["run", str(tmp_path / "x.yaml")])
    assert done.exit_code == 1 and "cannot load this" in done.output
    assert "best trial 0002" in done.output and "sweeps export /runs/x-1 " in done.output


def test_the_help_shows_each_example_in_a_line_of_its_own() -> None:
    shown = CliRunner().invoke(cli.main, ["--help"]).output
    assert (
        "\n  sweeps run space.yaml           search the space and export the best trial\n" in shown
        and r"\b" not in shown
    )
