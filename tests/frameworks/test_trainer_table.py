"""The table of what each trainer can do, in docs/how-to/trainers.md.

Each tick names the test that shows it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.space.sections.built_in_trainers import trainer_names
from tests.commands import REPO

COLUMNS = ("classification", "regression", "2 workers", "resume", "`--refit`", "bundle", "suite")
RESUMED = "test_a_resumed_run_equals_an_uninterrupted_one"
SUITE = "testing/test_trainers.py"
RANKS = "trainers/test_two_ranks.py::test_ranks_agree_and_repeat"
TORCH_RANKS = "trainers/test_torch_ranks.py"
BOOSTING = "frameworks/test_boosting_trainers.py"
LIGHTGBM_RANKS = "frameworks/test_lightgbm_ranks.py::test_ranks_agree_repeat_and_resume"
TWO = (
    "frameworks/test_two_ranks.py::"
    "test_ranks_train_one_model_and_a_resume_equals_an_uninterrupted_run"
)
EVERY = "test_a_resume_from_every_step_equals_an_uninterrupted_run"


def cells(
    trainer: str, workers: str | None, resumed: str, suite: str, regression: str | None = None
) -> tuple[str | None, ...]:
    """Return the tests of a trainer for each column."""
    sweep = f"frameworks/test_sweeps.py::test_a_sweep_from_run_to_predict[{trainer}]"
    other = f"frameworks/test_sweeps.py::test_a_sweep_of_another_task[{trainer}-regression]"
    return sweep, regression or other, workers, resumed, sweep, sweep, suite


# For each trainer, a test for each column. None where the trainer has no such thing.
CELLS: dict[str, tuple[str | None, ...]] = {
    "xgboost": cells(
        "xgboost",
        f"{RANKS}[sweeps.trainers.xgboost-regression]",
        f"{SUITE}::TestXGBoostBinary::{RESUMED}",
        f"{SUITE}::TestXGBoostBinary",
    ),
    "lightgbm": cells(
        "lightgbm",
        f"{LIGHTGBM_RANKS}[regression]",
        f"{LIGHTGBM_RANKS}[binary]",
        f"{BOOSTING}::TestLightGBM",
    ),
    "catboost": cells(
        "catboost", None, f"{BOOSTING}::TestCatBoost::{RESUMED}", f"{BOOSTING}::TestCatBoost"
    ),
    "sklearn": cells(
        "sklearn",
        None,
        f"trainers/test_sklearn_trainer.py::TestMiniBatches::{RESUMED}",
        "trainers/test_sklearn_trainer.py::TestForest",
    ),
    "torch_tabular": cells(
        "torch_tabular",
        f"{RANKS}[sweeps.trainers.torch_tabular-regression]",
        f"{SUITE}::TestTorchTabularBinary::{RESUMED}",
        f"{SUITE}::TestTorchTabularBinary",
    ),
    "torch": cells(
        "torch",
        f"{TORCH_RANKS}::test_two_ranks_equal_one_rank_with_doubled_batches",
        f"{TORCH_RANKS}::test_ranks_agree_and_a_resumed_run_equals_an_uninterrupted_one[ddp]",
        "trainers/test_torch_trainer.py::TestBinary",
    ),
    "keras": cells(
        "keras",
        "frameworks/test_keras_two_ranks.py::test_two_ranks_train_one_model[torch]",
        f"frameworks/test_keras_trainer.py::TestBinary::{RESUMED}",
        "frameworks/test_keras_trainer.py::TestBinary",
    ),
    "lightning": cells(
        "lightning",
        f"{TWO}[lightning-regression]",
        f"frameworks/test_lightning_trainer.py::{EVERY}",
        "frameworks/test_lightning_trainer.py::TestLightning",
    ),
    "transformers": cells(
        "transformers",
        f"{TWO}[transformers-regression]",
        f"frameworks/test_transformers_trainer.py::{EVERY}",
        "frameworks/test_transformers_trainer.py::TestTransformers",
    ),
    "command": cells(
        "command",
        "test_command.py::test_torchrun_script_runs_on_two_ranks_and_is_stopped",
        f"trainers/test_command_trainer.py::TestCommand::{RESUMED}",
        "trainers/test_command_trainer.py::TestCommand",
    ),
    "trainable": cells(
        "trainable",
        None,
        f"trainers/test_trainable_trainer.py::TestDict::{RESUMED}",
        "trainers/test_trainable_trainer.py::TestDict",
    ),
}


def table() -> str:
    """Return the table in Markdown."""
    lines = [f"| trainer | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    lines += [
        f"| `{name}` | {' | '.join('yes' if cell else 'no' for cell in cells)} |"
        for name, cells in CELLS.items()
    ]
    return "\n".join(lines)


def test_the_page_has_the_table_of_all_trainers() -> None:
    assert set(CELLS) == set(trainer_names())
    assert table() in (REPO / "docs" / "how-to" / "trainers.md").read_text()


@pytest.mark.frameworks
@pytest.mark.timeout(200)
def test_each_cell_has_a_test(tmp_path: Path) -> None:
    cells = {f"tests/{cell}" for row in CELLS.values() for cell in row if cell}
    files = sorted({cell.split("::")[0] for cell in cells})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-m",
        "",
        *files,
    ]  # -q is in pyproject.toml
    done = subprocess.run(
        command,
        cwd=REPO,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    assert [
        cell for cell in sorted(cells) if not any(test.startswith(cell) for test in collected)
    ] == []
