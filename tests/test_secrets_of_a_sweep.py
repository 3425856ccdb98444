"""The secrets of a sweep are in none of its files and in no output, although its code prints,
reports and raises them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.commands import command, invoke

KEY = """my "own" it's 100%/+\\é key"""
PASSWORD = """its 'loader' "needs"/%+\\ñ this"""
CODE = """
import json, logging, os, pathlib, sys, warnings
from urllib.parse import quote

import pandas as pd
import ray.train
import sweeps


def written(secret):
    return [secret, repr(secret), json.dumps(secret), quote(secret), f"https://me:{secret}@host/"]


def rows(password):
    if os.environ.get("FAILS"):
        raise ConnectionError(f"{password}: {written(password)}")
    return pd.DataFrame({"a": range(20)})


def train(config):
    secret = os.environ["FIRST"]
    print(*written(secret), flush=True)
    log = pathlib.Path(sweeps.trial.current().folder).parent / "logs/rank-0.log"
    shown = float(secret in log.read_text())
    logging.warning("%s", written(secret))
    warnings.warn(secret)
    os.write(2, f"by native code {secret}".encode())
    os.system('printf "by a child %s" "$FIRST"')
    ray.train.report({"loss": 0.0, "shown": shown, f"of {secret}": 1.0, "text": secret})
    if config["how"] == "raises":
        raise ValueError(f"{secret}: {written(secret)}")
    if config["how"] == "dies":
        os._exit(3)


class Tracker:
    def handle(self, event):
        raise ValueError(f"no {os.environ['MY_PASSWORD']}")

    def close(self):
        pass
"""
SPACE = """
name: leaks
trainer: {loop: "leaks:train", backend: none}
data: {train: {"leaks:rows": {password: "${MY_PASSWORD}"}}, valid: 0.5}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 3, max_concurrent_trials: 1, max_failures: 0}
runtime_env: {env_vars: {FIRST: "${MY_KEY}", SECOND: plain}}
trackers: [mlflow, jsonl, "leaks:Tracker"]
space: {params: {how: {grid: [raises, dies, returns]}}}
"""


def leaks_in(folder: Path, *outputs: str) -> list[str]:
    """Return the files in a folder, and the outputs, that have a part of a secret."""
    parts = [part for secret in (KEY, PASSWORD) for part in (secret[:10], secret[-10:])]
    forms = {
        form.encode()
        for part in parts
        for form in (part, repr(part)[1:-1], json.dumps(part)[1:-1], quote(part))
    }
    texts = {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    texts |= {output: output.encode() for output in outputs}
    return [name for name, text in texts.items() if any(form in text for form in forms)]


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("MY_PASSWORD", PASSWORD)
    code = tmp_path / "code"
    code.mkdir()
    (code / "leaks.py").write_text(CODE)
    (code / "space.yaml").write_text(SPACE)
    return code / "space.yaml"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_file_and_no_output_of_a_sweep_has_its_secrets(space: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = command("run", space, "--dir", runs, "--json")
    out, err = done.communicate(timeout=200)
    assert done.returncode == 0, err
    assert leaks_in(runs, out, err) == []
    folder = Path(json.loads(out)["dir"])
    log = (folder / "trials" / "0001" / "logs" / "rank-0.log").read_text()
    assert "by native code ***" in log and "by a child ***" in log
    lines = list(map(json.loads, (folder / "events.jsonl").read_text().splitlines()))
    reported = [line["metrics"] for line in lines if line["type"] == "TrialReported"]
    # The worker that died had not sent its report.
    assert reported == [{"loss": 0.0, "shown": 0.0, "of ***": 1.0}] * 2
    for arguments in (["show", folder, "--trial", "0000"], ["show", folder], ["logs", folder, "0"]):
        shown = invoke(*arguments)
        assert shown.exit_code == 0 and leaks_in(tmp_path / "none", shown.output) == []


def test_the_error_of_a_loader_has_no_secret(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "1")
    planned = invoke("plan", space, "--data", "--call-loaders")
    assert planned.exit_code == 2 and "`leaks:rows` failed: ConnectionError: ***" in planned.stderr
    assert leaks_in(tmp_path / "none", planned.output) == []
