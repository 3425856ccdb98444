"""Options of a user's trainer from the space file to the loop and to the bundle, which contains the
modules that options name.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import sweeps
from tests.commands import command

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(200)]

TRAINER = """
import json
from pathlib import Path

import ray.train
from sweeps import trial
from sweeps.core.plugins import references

TRAINER = {
    "load": "load",
    "needs_label": True,
    "parameters": {"power": {"type": "integer"}},
    "options": {"model": {"format": "reference", "description": "a class"}, \
"unit": {"type": "number", "default": 1.0}},
}


def train_func(config):
    cur = trial.current()
    valid = ray.train.get_dataset_shard("valid").materialize().to_pandas()
    model = references.resolve(cur.options["model"])(config["power"], cur.options["unit"])
    error = float(abs(model.predict(valid) - valid[cur.label]).mean())
    with __import__("tempfile").TemporaryDirectory() as folder:
        Path(folder, "model.json").write_text(json.dumps([cur.options["model"], \
config["power"], cur.options["unit"]]))
        ray.train.report({"valid-mae": error}, \
checkpoint=ray.train.Checkpoint.from_directory(folder))


def load(folder):
    name, power, unit = json.loads(Path(folder, "model.json").read_text())
    return references.resolve(name)(power, unit)
"""
NETS = """
class Power:
    def __init__(self, power, unit):
        self.power, self.unit = power, unit

    def predict(self, frame):
        return self.unit * frame["x"].to_numpy() ** self.power
"""
SPACE = """
trainer: {name: power_trainer, model: "power_nets:Power", unit: 2.0}
data: {train: rows.csv, label: y, valid: 0.3}
objective: {metric: valid-mae, goal: minimize}
limits: {max_trials: 3}
space: {params: {power: {grid: [1, 2, 3]}}}
"""


def test_options_reach_the_loop_and_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "power_trainer.py").write_text(TRAINER)
    (tmp_path / "power_nets.py").write_text(NETS)
    (tmp_path / "power.yaml").write_text(SPACE)
    x = [0.1 * i for i in range(40)]
    pd.DataFrame({"x": x, "y": [2 * each**2 for each in x]}).to_csv(
        tmp_path / "rows.csv", index=False
    )
    process = command("run", tmp_path / "power.yaml", "--dir", tmp_path / "runs", "--json")
    out, err = process.communicate(timeout=190)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["best"]["value"] == pytest.approx(0) and result["best"]["params"] == {"power": 2}
    for module in ("power_trainer", "power_nets"):
        (tmp_path / f"{module}.py").unlink()
    predicted = sweeps.load_bundle(result["bundle"]).predict(pd.DataFrame({"x": [3.0]}))
    assert predicted["prediction"].tolist() == [18.0]
