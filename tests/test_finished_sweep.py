"""Commands on a copy of a finished sweep; see tests/fixtures/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_wine

from sweeps.controller import commands
from tests.commands import command, invoke
from tests.serving.slow import post


def answered(*args: object) -> str:
    """Run a command in this process and return what it prints."""
    done = invoke(*args)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_resume_adds_a_trial_and_keeps_earlier_trials(
    finished_sweep: Any,
    clean_ray: Any,
    checked_in_this_process: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "discard", lambda file: None)
    stale = commands.send(finished_sweep, commands.Stop())  # It cannot be deleted.
    commands.answer_file(stale).mkdir()
    before = {
        t["trial"]: t["value"]
        for t in json.loads(answered("show", finished_sweep, "--json"))["all"]
    }
    answered("resume", finished_sweep, "--add-trials", 1, "--trust", "--json")
    after = {
        t["trial"]: t["value"]
        for t in json.loads(answered("show", finished_sweep, "--json"))["all"]
    }
    assert {trial: after[trial] for trial in before} == before and set(after) == {*before, "0004"}
    assert stale.exists()


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_pickles_are_not_read_without_trust(finished_sweep: Any) -> None:
    (pickled,) = (finished_sweep / "prepared").rglob("*.pkl")
    done = invoke("export", finished_sweep)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{pickled}: ") and "--trust" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (finished_sweep / "exports").exists()


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_predict_and_serve_accept_a_sweep_in_place_of_its_bundle(
    finished_sweep: Any, tmp_path: Path
) -> None:
    rows = load_wine(as_frame=True).data.head(20)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    said = set()
    for sweep in (
        ("latest", "--dir", finished_sweep.parent),
        (finished_sweep.name, "--dir", finished_sweep.parent),
        (finished_sweep,),
        (finished_sweep / "bundle",),
    ):
        said.add(answered("predict", sweep[0], tmp_path / "rows.csv", *sweep[1:]))
    assert len(said) == 1 and len(said.pop().splitlines()) == 21
    process = command("serve", "latest", "--dir", finished_sweep.parent, "--port", 0)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"serving {finished_sweep / 'bundle'} at http://"), line
    body = json.dumps(rows.to_dict("records")).encode()
    assert [row["prediction"] for row in post(line.split(" at ")[1].split()[0], body)].count(0) > 16
    process.terminate()
    assert process.wait(30) == 0
    (finished_sweep / "bundle").rename(tmp_path / "elsewhere")
    for verb, *rest in (("predict", tmp_path / "rows.csv"), ("serve",)):
        done = invoke(verb, finished_sweep, *rest)
        assert (
            (done.exit_code, done.stdout) == (2, "")
            and done.stderr.count("\n") == 1
            and "sweeps export" in done.stderr
        ), done.stderr
