"""Several sweeps at once on one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.files.origin import read_origin
from sweeps.core.host import host_resources
from tests.commands import command, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]


def started(folder: Path) -> list[Path]:
    """Return a file for each trial that has started."""
    return list(folder.glob("*.started-at-*"))


def test_a_second_sweep_takes_what_the_first_leaves_and_a_third_is_refused(tmp_path: Path) -> None:
    cpus = int(host_resources.detect()["CPU"])
    if cpus < 2:
        pytest.skip("needs two CPUs")
    files = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        files.append(space_of(tmp_path / name, "held", limits="max_trials: 2"))
    first = command(
        "run", files[0], "--dir", tmp_path / "first" / "runs", "--cpus", cpus - 1, "--json"
    )
    wait_until(lambda: started(tmp_path / "first"), 120, "the first sweep to start a trial")
    second = command("run", files[1], "--dir", tmp_path / "second" / "runs", "--json")
    wait_until(
        lambda: list((tmp_path / "second").glob("*.two")), 120, "the second sweep to start a trial"
    )
    assert len(started(tmp_path / "second")) == 1, "one CPU is left, so one trial runs"
    third = command("run", files[1], "--dir", tmp_path / "third")
    _, err = third.communicate(timeout=120)
    assert third.returncode == 2 and not list((tmp_path / "third").glob("own-*")), err
    (line,) = err.splitlines()
    assert line.startswith(
        "this machine: no CPU is left for this sweep: another sweep runs on this machine, own-"
    )
    assert (
        f"and uses {cpus - 1} of {cpus} CPUs; another sweep" in line
        and "give --cpus N to share" in line
    )
    for name in ("first", "second"):
        (tmp_path / name / "go").touch()
    (out, _), (_, err) = first.communicate(timeout=200), second.communicate(timeout=200)
    assert (first.returncode, second.returncode) == (0, 0), err
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert notes[0].startswith("note: another sweep runs on this machine, own-") and notes[
        0
    ].endswith(f"uses {cpus - 1} of {cpus} CPUs")
    assert notes[1] == "note: this sweep uses 1 CPU; the options --cpus and --gpus change this"
    assert read_origin(Path(json.loads(out)["dir"]))["cpus"] == cpus - 1, (
        "a resume has the same limit"
    )


def test_on_a_ray_of_the_user_a_limit_bounds_the_trials_at_once(
    clean_ray: Any, tmp_path: Path
) -> None:
    import sweeps

    (tmp_path / "go").touch()
    most: list[int] = []
    file = space_of(tmp_path, "held", limits="max_trials: 3")
    result = sweeps.run(
        file,
        dir=tmp_path / "runs",
        cpus=1,
        on_progress=lambda status: most.append(len(status.rows)),
    )
    assert result.trials["completed"] == 3 and max(most) == 1
