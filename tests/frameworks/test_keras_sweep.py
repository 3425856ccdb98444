"""A sweep with the trainer `keras` on two workers: run, resume, refit, and predict in processes
that cannot import Ray.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.commands import REPO
from tests.frameworks.sweep_commands import call, predicted_without_ray

pytestmark = pytest.mark.timeout(240)

SPACE = """\
name: keras-two
trainer: {{name: keras, model: "nets:compiled", framework: {framework}}}
data: {{train: "sklearn:breast_cancer", label: target, valid: 0.25}}
objective: {{metric: valid-AUC, goal: maximize}}
search: {{seed: 3}}
limits: {{max_trials: 2}}
space:
  preprocessor: [StandardScaler]
  scaling: {{num_workers: 2, resources_per_worker: {{CPU: 1}}}}
  params: {{units: {{choice: [8, 16]}}, learning_rate: {{loguniform: [1e-3, 1e-1]}}, epochs: 3, batch_size: 64}}
"""


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.frameworks),
        pytest.param("tensorflow", marks=pytest.mark.frameworks_all),
    ],
)
def test_a_sweep_on_two_workers(tmp_path, framework):
    if not find_spec("keras") or not find_spec(framework):
        pytest.skip(f"needs keras and {framework}")
    from sklearn.datasets import load_breast_cancer

    (tmp_path / "space.yaml").write_text(SPACE.format(framework=framework))
    shutil.copy(REPO / "tests" / "frameworks" / "keras_models.py", tmp_path / "nets.py")
    result = json.loads(call("run", tmp_path / "space.yaml", "--dir", tmp_path / "runs", "--json"))
    assert result["trials"]["completed"] == 2 and result["best"]["value"] > 0.9
    again = json.loads(call("resume", result["dir"], "--add-trials", "1", "--json"))
    assert again["trials"]["completed"] == 3
    call("export", result["dir"], "--refit", "-o", tmp_path / "refitted")
    data = load_breast_cancer(as_frame=True)
    data.data.to_csv(tmp_path / "rows.csv", index=False)
    for bundle in (Path(again["bundle"]), tmp_path / "refitted"):
        assert (predicted_without_ray(bundle, tmp_path)["prediction"] == data.target).mean() > 0.85
        packages = {
            line.split("==")[0].replace("_", "-")
            for line in (bundle / "requirements.txt").read_text().split()
        }
        assert (
            packages & {"torch", "tensorflow-cpu", "tensorflow"} == {"torch"}
            if framework == "torch"
            else "torch" not in packages
        )
        assert "keras" in packages and "ray" not in packages
