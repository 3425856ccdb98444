"""The output and the exit code of `sweeps run` after the end of a sweep."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.controller.status import SweepStatus
from sweeps.core.errors import BundleError, SweepFailed, SweepsError
from sweeps.core.result import SweepResult
from tests.commands import invoke

MESSAGE = "data: 600 rows"


def result_of(folder: Path, **more: Any) -> SweepResult:
    """Return the result of a sweep."""
    return SweepResult("shown-1", folder, {}, None, None, None, {}, 0, 1.0, **more)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[[SweepResult | SweepsError], None]:
    """Return a function that sets the outcome of `sweeps run`, which shows one message before."""

    def set_outcome(outcome: SweepResult | SweepsError) -> None:
        def run(file: str, on_progress: Any, **_: Any) -> SweepResult:
            on_progress(SweepStatus(messages=(MESSAGE,)))
            if isinstance(outcome, SweepsError):
                raise outcome
            return outcome

        monkeypatch.setattr("sweeps.runs.api.run", run)

    return set_outcome


def test_the_result_follows_the_progress(ends: Any, tmp_path: Path) -> None:
    ends(result_of(tmp_path))
    done = invoke("run", "space.yaml")
    assert done.exit_code == 0 and MESSAGE in done.stderr
    assert done.stdout.startswith("shown-1: no trial in 0:01")


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_quiet_and_json_show_no_progress(ends: Any, tmp_path: Path, option: str) -> None:
    ends(result_of(tmp_path))
    done = invoke("run", "space.yaml", option)
    assert done.exit_code == 0 and done.stderr == ""
    if option == "--json":
        assert json.loads(done.stdout)["sweep"] == "shown-1"
    else:
        assert done.stdout.startswith("shown-1: no trial")


def test_an_interrupted_sweep_has_its_own_exit_code(ends: Any, tmp_path: Path) -> None:
    ends(result_of(tmp_path, reason="interrupted"))
    done = invoke("run", "space.yaml")
    assert done.exit_code == 130 and "ended early: interrupted" in done.stdout


def test_a_failed_export_still_shows_the_result(ends: Any, tmp_path: Path) -> None:
    error = BundleError("the bundle was not written")
    error.result = result_of(tmp_path)
    ends(error)
    done = invoke("run", "space.yaml")
    assert done.exit_code == 1 and done.stdout.startswith("shown-1: no trial")
    assert done.stderr.endswith("the bundle was not written\n")


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_a_failed_sweep_shows_its_result_as_json_only(
    ends: Any, tmp_path: Path, option: str
) -> None:
    error = SweepFailed("5 trials failed")
    error.result = result_of(tmp_path)
    ends(error)
    done = invoke("run", "space.yaml", option)
    assert done.exit_code == 1 and done.stderr == "5 trials failed\n"
    assert done.stdout.startswith('{"sweep": "shown-1"') == (option == "--json")


@pytest.mark.parametrize("equal", [True, False])
def test_rerun_fails_if_the_reports_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, equal: bool
) -> None:
    class Comparison:
        def __init__(self) -> None:
            self.equal = equal

        def __str__(self) -> str:
            return "compared"

    monkeypatch.setattr("sweeps.exports.rerun.rerun", lambda *_, **__: Comparison())
    monkeypatch.setattr("sweeps.stored.stored_sweeps.fetch_named", lambda *_: tmp_path)
    done = invoke("rerun", "latest", "0000")
    assert done.stdout == "compared\n" and done.exit_code == (0 if equal else 1)
