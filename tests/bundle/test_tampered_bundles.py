"""Every way to tamper with a bundle in the table is refused with the file's name, and none of its
code runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tampering
from bundle_parts import write_parts
from test_bundle_of_trainers import SKLEARN, trained

import sweeps.trainers.xgboost
from sweeps.bundle.bundle_model import load_bundle
from sweeps.core.errors import BundleError
from tests.commands import check_in_this_process

pytestmark = [pytest.mark.timeout(120), pytest.mark.integration]

BY_MLFLOW = """
import json, sys, mlflow.pyfunc
for folder in sys.argv[1:]:
    before = list(sys.path)
    try:
        mlflow.pyfunc.load_model(folder)
        answer = "loaded"
    except Exception as e:
        answer = (type(e).__name__ + ": " if type(e).__name__ != "IntegrityError" else "") \
+ str(e).splitlines()[0]
    ran = [m for m in sys.modules if m.split(".")[0] in ("sweeps", "xgboost")]
    ran += ["what looked"] * ("sweeps_bundle" in sys.modules) \
+ ["nothing, but may"] * (sys.path != before)
    print(json.dumps([answer, ran]))
"""


def good(folder: Path) -> Path:
    """A bundle with a pickle in it."""
    (folder / "training").mkdir()
    parts = trained(
        sweeps.trainers.xgboost, {"num_boost_round": 5}, "binary", SKLEARN, folder / "training"
    )
    bundle: Path = write_parts(folder / "good" / "bundle", **parts)
    return bundle


def answered(bundle: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """Return the error message of each case, without the bundle's path."""
    copies = {}
    for i, case in enumerate(tampering.CASES):
        copies[case.what] = Path(shutil.copytree(bundle, folder / f"case-{i}"))
        tampering.applied(case, copies[case.what])
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "MLFLOW_DISABLE_TELEMETRY": "true"
    }
    command = [sys.executable, "-c", BY_MLFLOW, *map(str, copies.values())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=100)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(copies), done.stderr
    answers = {}
    for (what, copy), (theirs, ran) in zip(copies.items(), lines, strict=True):
        assert not ran, f"{what}: MLflow imported {ran}"
        try:
            load_bundle(copy)
            ours = "loaded"
        except BundleError as e:
            ours = str(e)
        answers[what] = (ours.replace(f"{copy}: ", ""), theirs.replace(f"{copy}: ", ""))
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("tampered")
    mark = folder / "mark"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(tampering.MARK, str(mark))
        check_in_this_process(patch)
        bundle = good(folder)
        load_bundle(bundle)
        yield answered(bundle, folder), mark


def test_every_one_is_refused_with_the_files_name(answers: Any) -> None:
    refusals, _ = answers
    assert len(refusals) == len(tampering.CASES) >= 30
    for what, (ours, theirs) in refusals.items():
        name = what.split("`")[1]
        for answer in (ours, theirs):
            assert answer != "loaded", what
            said = (
                ("manifest.json", "manifest.sha256")
                if "manifest" in what
                else (name, name.rpartition("/")[2])
            )
            assert any(n in answer for n in said), (what, answer)


def test_nothing_was_run(answers: Any) -> None:
    assert not answers[1].exists()


def test_the_page_is_the_table(answers: Any) -> None:
    assert tampering.PAGE.read_text(encoding="utf-8") == tampering.page(answers[0]), (
        f"it is out of date; renew it: {tampering.COMMAND}"
    )
