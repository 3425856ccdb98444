"""The trainer and the preprocessor of the documentation validate, pass their suites and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.core.errors import InputError
from sweeps.space import load
from tests.commands import REPO, command
from tests.documents import BLOCKS, is_space, module_named

PAGES = ("docs/how-to/own-trainer.md", "docs/how-to/own-preprocessor.md")
each_page = pytest.mark.parametrize("page", PAGES)


def write_example(page: str, folder: Path) -> Path:
    """Write the modules, tests and the space file of a documentation page into a folder, and return
    the space file's path.
    """
    blocks = [block for block in BLOCKS if block.page == page]
    for block in blocks:
        if (name := module_named(block)) is not None:
            (folder / name).write_text(block.text)
    (space,) = [block.text for block in blocks if is_space(block)]
    (folder / "space.yaml").write_text(space)
    return folder / "space.yaml"


@each_page
def test_it_validates(page: str, tmp_path: Path) -> None:
    assert load(write_example(page, tmp_path)).shapes


@pytest.mark.timeout(120)
def test_they_pass_their_suites(tmp_path: Path) -> None:
    for page in PAGES:
        write_example(page, tmp_path)
    suites = sorted(tmp_path.glob("test_*.py"))
    assert len(suites) == len(PAGES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPO)])}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            *suites,
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_problems_that_the_page_shows_are_reported(tmp_path: Path) -> None:
    file = write_example(PAGES[0], tmp_path)
    text = (
        file.read_text()
        .replace("{loguniform: [1e-2, 0.5]}", "{uniform: [-1, 1]}")
        .replace("decay:", "decey:")
    )
    file.write_text(text)
    with pytest.raises(InputError) as e:
        load(file)
    shown = [block.text for block in BLOCKS if block.page == PAGES[0] and block.language == "text"]
    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in e.value.problems] == shown[
        0
    ].splitlines()


@each_page
@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(240)
def test_the_sweep_of_the_wheel_runs(page: str, tmp_path: Path) -> None:
    file = write_example(page, tmp_path)
    process = command("run", file, "--dir", tmp_path / "root", "--json")
    out, err = process.communicate(timeout=220)
    assert process.returncode == 0, err
    assert json.loads(out)["trials"]["failed"] == 0
