"""`sweeps serve` as a user types it: where it listens, what it answers, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bundle"))
import made

from sweeps.bundle import export
from tests.commands import command
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(90), pytest.mark.integration]

SLOW = """

def load_slow(folder):
    import os, time
    model = load(folder)
    def predict(features):
        if len(features) == 3:
            open(os.environ["SWEEPS_TEST_BEGUN"], "w").close()
            while not os.path.exists(os.environ["SWEEPS_TEST_GO"]):
                time.sleep(0.01)
        return Model.predict(model, features)
    model.predict = predict
    return model
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        kept = made.ingredients(folder, patch, "served")
        module = folder / "model_served.py"
        module.write_text(module.read_text() + SLOW)
        kept["load"] = "model_served:load_slow"
        yield export(folder / "bundle", **kept), kept


def started(bundle: Path, *options: str):
    """The process, and the address that it prints."""
    process = command("serve", bundle, "--port", "0", *options)
    line = process.stderr.readline()
    assert line.startswith(f"serving {bundle} at http://"), line + process.stderr.read()
    return process, line.split(" at ")[1].split(" ")[0]


def rows(frame: pd.DataFrame) -> bytes:
    return json.dumps({"records": json.loads(frame.to_json(orient="records", double_precision=15))}).encode()


def post(url: str, body: bytes):
    request = urllib.request.Request(f"{url}/predict", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())["predictions"]


def test_answers_on_loopback_and_drains_what_is_in_flight(bundle, tmp_path, monkeypatch):
    path, kept = bundle
    begun, go = tmp_path / "begun", tmp_path / "go"
    monkeypatch.setenv("SWEEPS_TEST_BEGUN", str(begun))
    monkeypatch.setenv("SWEEPS_TEST_GO", str(go))
    process, url = started(path, "--max-bytes", "5000")
    assert url.startswith("http://127.0.0.1:")
    got = post(url, rows(kept["raw"]))
    np.testing.assert_allclose([r["probability_yes"] for r in got], kept["expected"], rtol=1e-12)
    with pytest.raises(urllib.error.HTTPError) as e:
        post(url, b"[" + b" " * 6000 + b"]")
    assert e.value.code == 413

    slow: list = []
    asking = threading.Thread(target=lambda: slow.append(post(url, rows(kept["raw"].iloc[:3]))))
    asking.start()
    wait_until(begun.exists, 20, "the model to work")
    process.send_signal(signal.SIGTERM)
    host, port = url.removeprefix("http://").split(":")

    def deaf() -> bool:
        with socket.socket() as s:
            s.settimeout(1)
            return s.connect_ex((host, int(port))) != 0

    wait_until(deaf, 20, "the server to take no more")
    assert asking.is_alive() and process.poll() is None
    go.touch()
    asking.join(20)
    assert len(slow[0]) == 3
    assert process.wait(20) == 0


def test_what_cannot_be_served_is_one_line(bundle, tmp_path):
    def said(*args: object) -> tuple[int, str]:
        process = command("serve", *args)
        text = process.communicate(timeout=40)[1]
        return process.returncode, text

    code, text = said(tmp_path / "none")
    assert code == 2 and text == f"{tmp_path / 'none'}: there is no such folder\n"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        code, text = said(bundle[0], "--port", s.getsockname()[1])
    assert code == 2 and text.count("\n") == 1 and "cannot be listened on: Address already in use" in text
