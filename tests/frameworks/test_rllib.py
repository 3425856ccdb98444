"""The page about RLlib: its space file runs, and its code uses the best policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCUMENTS
from tests.frameworks.test_sweeps import call

pytestmark = [pytest.mark.timeout(240)]
PAGE = DOCUMENTS["docs/how-to/rllib.md"]


@pytest.mark.frameworks
def test_ppo_is_tuned_and_its_best_policy_acts(clean_ray: Any, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="RLlib needs the extra `rllib`")
    space, code = (
        next(block.text for block in PAGE.blocks if block.language == language)
        for language in ("yaml", "python")
    )
    (tmp_path / "cartpole.yaml").write_text(space)
    short = {
        "limits.max_trials": 1,
        "scheduler": "{name: none, max_t: 2}",
        "space.params.train_batch_size_per_learner": 512,
        "space.params.num_epochs": 1,
        "trackers": "[]",
    }
    options = [part for key, value in short.items() for part in ("--set", f"{key}={value}")]
    typed = ("run", tmp_path / "cartpole.yaml", "--dir", tmp_path / "runs", "--json", *options)
    result = json.loads(call(*typed))
    assert result["trials"]["failed"] == 0 and result["best"]["value"] > 5
    checkpoint = Path(result["dir"], "checkpoint")
    named = next(line for line in code.splitlines() if line.startswith("checkpoint = "))
    values: dict[str, Any] = {}
    exec(code.replace(named, f"checkpoint = Path({str(checkpoint)!r})"), values)
    assert values["action"] in (0, 1)
