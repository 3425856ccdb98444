"""A folder that version 3d17d2a wrote is shown, resumed, exported and predicted with; see tests/fixtures/README.md."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest
from sklearn.datasets import load_wine

from sweeps.controller import commands
from tests.commands import REPO, command, invoke
from tests.serving.slow import post


def answered(*args: object) -> str:
    """Run a command in this process and return what it prints."""
    done = invoke(*args)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_show_lists_its_trials(old_sweep):
    shown = json.loads(answered("show", old_sweep, "--json"))
    assert {t["trial"]: t["state"] for t in shown["all"]} == {
        "0000": "COMPLETE",
        "0001": "PRUNED",
        "0002": "COMPLETE",
        "0003": "PRUNED",
    }
    assert shown["best"]["trial"] == "0002" and shown["best"]["value"] == pytest.approx(
        0.364294, rel=1e-5
    )
    assert "0002" in answered("show", old_sweep)


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_resume_adds_a_trial_and_keeps_earlier_trials(old_sweep, clean_ray, monkeypatch):
    monkeypatch.setattr(commands, "discard", lambda file: None)
    stale = commands.send(old_sweep, commands.Stop())  # It cannot be deleted.
    stale.with_name(commands.answer_name(stale.name)).mkdir()
    before = {
        t["trial"]: t["value"] for t in json.loads(answered("show", old_sweep, "--json"))["all"]
    }
    answered("resume", old_sweep, "--add-trials", 1, "--trust", "--json")
    after = {
        t["trial"]: t["value"] for t in json.loads(answered("show", old_sweep, "--json"))["all"]
    }
    assert {trial: after[trial] for trial in before} == before and set(after) == {*before, "0004"}
    assert stale.exists()


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "verb", [("resume", "--add-trials", 1), ("export", "--trial", "0000")], ids=["resume", "export"]
)
def test_r2_its_pickles_are_not_read_without_trust(old_sweep, clean_ray, verb):
    before = {path: path.read_bytes() for path in old_sweep.rglob("*") if path.is_file()}
    done = invoke(verb[0], old_sweep, *verb[1:])
    assert (done.exit_code, done.stdout) == (2, "") and done.stderr.count("\n") == 1, done.stderr
    assert str(old_sweep / "prepared" / "facts.pkl") in done.stderr and "--trust" in done.stderr
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_export_writes_a_bundle_that_predicts(old_sweep, tmp_path):
    answered("export", old_sweep, "--trial", "0000", "-o", tmp_path / "new", "--trust")
    rows = load_wine(as_frame=True).data.head(20)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for bundle in (old_sweep / "bundle", tmp_path / "new"):
        answered("predict", bundle, tmp_path / "rows.csv", "-o", tmp_path / "out.csv")
        assert (pd.read_csv(tmp_path / "out.csv")["prediction"] == 0).mean() > 0.8


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_predict_and_serve_accept_a_sweep_in_place_of_its_bundle(old_sweep, tmp_path):
    rows = load_wine(as_frame=True).data.head(20)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    said = set()
    for sweep in (
        ("latest", "--dir", old_sweep.parent),
        (old_sweep.name, "--dir", old_sweep.parent),
        (old_sweep,),
        (old_sweep / "bundle",),
    ):
        said.add(answered("predict", sweep[0], tmp_path / "rows.csv", *sweep[1:]))
    assert len(said) == 1 and len(said.pop().splitlines()) == 21
    process = command("serve", "latest", "--dir", old_sweep.parent, "--port", 0)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"serving {old_sweep / 'bundle'} at http://"), line
    body = json.dumps(rows.to_dict("records")).encode()
    assert [row["prediction"] for row in post(line.split(" at ")[1].split()[0], body)].count(0) > 16
    process.terminate()
    assert process.wait(30) == 0
    (old_sweep / "bundle").rename(tmp_path / "elsewhere")
    for verb, *rest in (("predict", tmp_path / "rows.csv"), ("serve",)):
        done = invoke(verb, old_sweep, *rest)
        assert (
            (done.exit_code, done.stdout) == (2, "")
            and done.stderr.count("\n") == 1
            and "sweeps export" in done.stderr
        ), done.stderr


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_the_old_bundle_loads_without_sweeps(old_sweep):
    """MLflow loads the bundle with the copy of sweeps that the bundle carries."""
    code = (
        "import sys, mlflow.pyfunc, pandas as pd, sklearn.datasets as d\n"
        f"model = mlflow.pyfunc.load_model({str(old_sweep / 'bundle')!r})\n"
        "out = model.predict(d.load_wine(as_frame=True).data.head(5))\n"
        f"assert not sys.modules['sweeps'].__file__.startswith({str(REPO)!r}), sys.modules['sweeps'].__file__\n"
        "print(out['prediction'].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=old_sweep,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[0, 0, 0, 0, 0]"
