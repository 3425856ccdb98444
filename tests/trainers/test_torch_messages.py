"""Invalid options of the trainer torch, and its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.testing.fake_session import FakeShard, small_table
from tests.trainers.test_torch_trainer import run


@pytest.mark.parametrize(
    ("options", "params", "message"),
    [
        (
            {},
            {"widht": 3},
            r"params.widht is unknown to the trainer `torch` and .*; did you mean `width`\?",
        ),
        (
            {},
            {"optimizer": "torch.optim:Adamw"},
            "params.optimizer: `torch.optim:Adamw`: `torch.optim` has no `Adamw`",
        ),
        (
            {},
            {"optimizer_args": {"beta": 1}},
            "params.optimizer: `torch.optim:AdamW` cannot be called with the arguments lr, beta",
        ),
        (
            {},
            {"schedule": "torch.optim.lr_scheduler:StepLR"},
            "params.schedule: .* missing .* 'step_size'",
        ),
        ({}, {"loader_workers": 1}, "params.loader_workers: needs trainer.dataset"),
        (
            {},
            {"out_features": 5},
            r"the outputs have the shape \(1, 5\), but must have \(batch, 1\) or \(batch, 2\)",
        ),
    ],
)
def test_messages(options: Any, params: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        run("binary", tmp_path, {"epochs": 1} | params, options)


def test_columns_that_are_neither_numbers_nor_arrays(tmp_path: Path) -> None:
    _, shards = small_table("binary")
    frames = {name: shard.frame for name, shard in shards.items()}
    text = {name: FakeShard(frame.assign(town="Pau")) for name, frame in frames.items()}
    with pytest.raises(ValueError, match="these columns are not numeric after preprocessing: town"):
        run("binary", tmp_path, {"epochs": 1}, shards=text, _cached_objects={})
    ragged = {
        name: FakeShard(frame.assign(a=[np.ones(1 + i % 2) for i in range(len(frame))]))
        for name, frame in frames.items()
    }
    with pytest.raises(
        ValueError,
        match="the column `a` must have an array of numbers in every row, and all arrays the same "
        "shape",
    ):
        run("binary", tmp_path, {"epochs": 1}, shards=ragged, _cached_objects={})
