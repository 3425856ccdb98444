"""A trial that `export --refit` trains again makes the same steps as in the sweep, although it ends
earlier.

The learning rates of these trainers depend on the number of all steps, which is the scheduler's
`max_t` by default.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from sweeps.testing.fake_session import run_loop, small_table

pytest.importorskip("lightning")
pytest.importorskip("transformers")
pytest.importorskip("catboost")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]
LIGHTNING = {
    "module": "tests.frameworks.user_modules:Net",
    "datamodule": None,
    "output": "logits",
    "strategy": "ddp",
}
BERT = {
    "model": "tests.frameworks.user_models:bert",
    "tokenizer": None,
    "dataset": "tests.frameworks.user_models:bins",
}
TRAINERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "lightning": ({"schedule": "cosine", "batch_size": 33}, LIGHTNING, "valid-loss"),
    "transformers": (
        {"per_device_train_batch_size": 33, "learning_rate": 0.01},
        BERT | {"standardize_target": True},
        "valid-loss",
    ),
    "catboost": ({"depth": 3}, {}, "valid-logloss"),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trial_that_is_trained_again_makes_the_steps_of_the_sweep(
    name: Any, tmp_path: Path
) -> None:
    params, options, metric = TRAINERS[name]
    loop = importlib.import_module(f"sweeps.trainers.{name}").train_func
    runs = {}
    for steps in (6, 2):
        current, shards = small_table("binary")
        given = {
            "options": options,
            "metric": metric,
            "asked": (metric,),
            "max_t": steps,
            "sweep_max_t": 6,
            "keep_last": steps == 2,
        }
        (tmp_path / str(steps)).mkdir()
        runs[steps] = run_loop(
            loop, dict(params), current(**given), shards, tmp_path / str(steps), stop_at=steps
        )
    assert runs[2].metrics == runs[6].metrics[:2] and max(runs[2].checkpoints) == 2
