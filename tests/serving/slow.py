"""A bundle on disk with a model that waits for the test, and a server process for this bundle."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bundle"))
import bundle_parts

from tests.commands import check_in_this_process, command

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


@contextlib.contextmanager
def exported(folder: Path, tag: str) -> Iterator[Any]:
    """Return a bundle and the arguments of its export."""
    with pytest.MonkeyPatch.context() as patch:
        kept = bundle_parts.ingredients(folder, patch, tag)
        module = folder / f"model_{tag}.py"
        module.write_text(module.read_text() + SLOW)
        del sys.modules[module.stem]  # imported before it had `load_slow`
        kept["load"] = f"model_{tag}:load_slow"
        check_in_this_process(patch)
        yield bundle_parts.write_parts(folder / "bundle", **kept), kept


def started(bundle: Path, *options: object) -> Any:
    """Start the server, and return its process and the address that it prints."""
    process = command("serve", bundle, "--port", "0", "--no-example", *options)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"serving {bundle} at http://"), line + process.stderr.read()
    return process, line.split(" at ")[1].split(" ")[0]


def rows(frame: pd.DataFrame) -> bytes:
    return json.dumps(
        {"records": json.loads(frame.to_json(orient="records", double_precision=15))}
    ).encode()


def post(url: str, body: bytes, **headers: str) -> Any:
    request = urllib.request.Request(
        f"{url}/predict", body, {"Content-Type": "application/json"} | headers
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())["predictions"]
