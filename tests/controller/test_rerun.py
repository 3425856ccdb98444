"""One trial once more: equal to the bit, or from which step on it differs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sweeps import space as space_file
from sweeps.core.errors import InputError
from sweeps.exports.rerun import RerunComparison, rerun
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import save_space
from tests.commands import command, space_of


def reported(*values: float) -> tuple[tuple[int, dict[str, float]], ...]:
    return tuple((step, {"loss": 1.0, "auc": value}) for step, value in enumerate(values, 1))


CURVE = reported(0.5, math.nan, 0.25)


def test_curves_are_compared_to_the_bit() -> None:
    def difference(before: Any, now: Any) -> Any:
        return RerunComparison("0003", before, now).difference

    assert difference(CURVE, CURVE) is None
    assert difference(CURVE, reported(0.5, math.nan, math.nextafter(0.25, 1))) == (3, "auc")
    assert difference(CURVE, CURVE[:2]) == (3, "loss")
    assert difference((), CURVE) == (1, "loss")


def test_what_is_said_of_it() -> None:
    assert (
        str(RerunComparison("0003", CURVE, CURVE))
        == "trial 0003: 3 steps, bit-identical to the original run"
    )
    other = RerunComparison("0003", CURVE, reported(0.5, math.nan, 0.3))
    assert (
        not other.equal
        and str(other) == "trial 0003: differs from step 3 on: auc was 0.25 and is now 0.3"
    )
    assert "was 1.0 and is now missing" in str(RerunComparison("0003", CURVE, CURVE[:2]))
    assert "fails now: boom" in str(RerunComparison("0003", CURVE, CURVE, "boom"))
    again = RerunComparison("0003", CURVE, CURVE, "Traceback\nboom", failed=True)
    assert (
        again.equal
        and str(again)
        == "trial 0003: fails again after 3 steps, bit-identical to the original run: boom"
    )
    assert (
        str(RerunComparison("0003", (), (), "boom", failed=True))
        == "trial 0003: fails again after 0 steps: boom"
    )
    assert json.loads(json.dumps(other.to_json()))["differs_from"] == 3


@pytest.mark.long
@pytest.mark.timeout(240)
def test_same_file_and_seed_give_same_trials_and_rerun(
    tmp_path: Path,
) -> None:
    file = space_of(tmp_path, "seeded", limits="max_trials: 3, max_concurrent_trials: 1")
    outs = []
    for name in ("a", "b"):
        process = command("run", file, "--dir", tmp_path / name, "--json")
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        outs.append(json.loads(out))
    curves = []
    for out in outs:
        shown = json.loads(command("show", out["dir"], "--json").communicate(timeout=60)[0])
        curves.append([(t["trial"], t["params"], t["seed"], t["curve"]) for t in shown["all"]])
    assert curves[0] == curves[1] and len({str(c[3]) for c in curves[0]}) == 3
    before = sorted(f.name for f in Path(outs[0]["dir"]).iterdir())
    assert {"provenance.json"} <= set(before)
    again = command("rerun", outs[0]["dir"], "1")
    assert (
        again.communicate(timeout=100)[0]
        == "trial 0001: 5 steps, bit-identical to the original run\n"
        and again.returncode == 0
    )
    assert sorted(f.name for f in Path(outs[0]["dir"]).iterdir()) == before, (
        "nothing of the sweep is changed"
    )
    (tmp_path / "changed").touch()
    other = command("rerun", outs[0]["dir"], "1", "--json")
    comparison = json.loads(other.communicate(timeout=100)[0])
    assert other.returncode == 1 and (comparison["equal"], comparison["differs_from"]) == (False, 3)


@pytest.mark.parametrize(
    "point, said",
    [(True, "whose result the space file gives"), (False, "stopped before its first report")],
)
def test_what_was_never_run_cannot_be_run_again(tmp_path: Path, point: bool, said: str) -> None:
    file = space_of(tmp_path, "plain")
    if point:
        file.write_text(
            file.read_text() + "search: {initial_points: [{params.x: 0.5, value: 0.1}]}\n"
        )
    space = space_file.load(file)
    folder = tmp_path / "own-1"
    folder.mkdir()
    save_space(folder, space, 1.0)
    loop = SearchLoop.open(folder, space)
    if not point:
        assert loop.ask() is not None
    with pytest.raises(InputError, match=said):
        rerun(folder, "0")
