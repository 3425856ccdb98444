"""The table of what each trainer can do, in docs/how-to/trainers.md.

Each tick names the test that shows it.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sweeps.space.trainer_section import trainer_names
from tests.commands import REPO

COLUMNS = ("classification", "regression", "2 workers", "resume", "`--refit`", "bundle", "suite")
SWEEP, OTHER = "test_a_sweep_from_run_to_predict", "test_a_sweep_of_another_task"
TABLE, NETWORK = "frameworks/test_table_sweeps.py", "frameworks/test_network_sweeps.py"
BOTH, RANKS, SUITE = (
    "trainers/test_both_trainers.py",
    "trainers/test_two_ranks.py",
    "testing/test_trainers.py",
)
KERAS, SKLEARN = (
    "frameworks/test_keras_sweep.py::test_a_sweep_on_two_workers[torch]",
    "frameworks/test_sklearn.py",
)
KERAS_TRAINER = "frameworks/test_keras_trainer.py"
PIPELINE = f"{SKLEARN}::test_an_own_pipeline_grows_under_asha_is_refitted_and_predicts_without_ray"
GRID = f"{SKLEARN}::test_each_kind_of_estimator_is_swept_refitted_and_predicts_without_ray"
IMAGES = "frameworks/test_torch_sweep.py::test_images_on_two_workers"
CLASS = (
    "frameworks/test_trainable_sweep.py::test_a_class_is_swept_refitted_and_predicts_without_ray"
)
SCRIPT = "frameworks/test_command_sweep.py::test_a_script_from_run_to_predict"
RESUMED = "test_a_resumed_run_equals_an_uninterrupted_one"
# For each trainer, a test for each column. None where the trainer has no such thing.
CELLS: dict[str, tuple[str | None, ...]] = {
    "xgboost": (
        f"{TABLE}::{SWEEP}[xgboost]",
        f"{TABLE}::{OTHER}[xgboost-regression]",
        f"{RANKS}::test_ranks_agree_and_repeat[sweeps.trainers.xgboost-regression]",
        f"{SUITE}::TestXGBoostBinary::{RESUMED}",
        f"{TABLE}::{SWEEP}[xgboost]",
        f"{TABLE}::{SWEEP}[xgboost]",
        f"{SUITE}::TestXGBoostBinary",
    ),
    "lightgbm": (
        f"{TABLE}::{SWEEP}[lightgbm]",
        f"{TABLE}::{OTHER}[lightgbm-regression]",
        "frameworks/test_lightgbm_ranks.py::test_ranks_agree_repeat_and_resume[regression]",
        "frameworks/test_lightgbm_ranks.py::test_ranks_agree_repeat_and_resume[binary]",
        f"{TABLE}::{SWEEP}[lightgbm]",
        f"{TABLE}::{SWEEP}[lightgbm]",
        "frameworks/test_boosting_trainers.py::TestLightGBM",
    ),
    "catboost": (
        f"{TABLE}::{SWEEP}[catboost]",
        f"{TABLE}::{OTHER}[catboost-regression]",
        None,
        f"frameworks/test_boosting_trainers.py::TestCatBoost::{RESUMED}",
        f"{TABLE}::{SWEEP}[catboost]",
        f"{TABLE}::{SWEEP}[catboost]",
        "frameworks/test_boosting_trainers.py::TestCatBoost",
    ),
    "sklearn": (
        PIPELINE,
        f"{GRID}[regression",
        None,
        f"trainers/test_sklearn_trainer.py::TestMiniBatches::{RESUMED}",
        PIPELINE,
        PIPELINE,
        "trainers/test_sklearn_trainer.py::TestForest",
    ),
    "torch_tabular": (
        f"{TABLE}::{SWEEP}[torch_tabular]",
        f"{TABLE}::{OTHER}[torch_tabular-regression]",
        f"{RANKS}::test_ranks_agree_and_repeat[sweeps.trainers.torch_tabular-regression]",
        f"{SUITE}::TestTorchTabularBinary::{RESUMED}",
        f"{TABLE}::{SWEEP}[torch_tabular]",
        f"{TABLE}::{SWEEP}[torch_tabular]",
        f"{SUITE}::TestTorchTabularBinary",
    ),
    "torch": (
        IMAGES,
        "trainers/test_torch_trainer.py::TestRegression",
        "trainers/test_torch_ranks.py::test_two_ranks_make_the_steps_of_one_rank_with_batches_of_twice_the_size",
        "trainers/test_torch_ranks.py::test_ranks_agree_and_a_resumed_run_equals_an_uninterrupted_one[ddp]",
        IMAGES,
        IMAGES,
        "trainers/test_torch_trainer.py::TestBinary",
    ),
    "keras": (
        KERAS,
        f"{KERAS_TRAINER}::test_the_loaded_model_has_the_metrics_of_the_best_epoch[regression-compiled]",
        "frameworks/test_keras_two_ranks.py::test_two_ranks_train_one_model[torch]",
        f"{KERAS_TRAINER}::TestBinary::{RESUMED}",
        KERAS,
        KERAS,
        f"{KERAS_TRAINER}::TestBinary",
    ),
    "lightning": (
        f"{NETWORK}::{SWEEP}[lightning]",
        f"{NETWORK}::{OTHER}[lightning-regression]",
        "frameworks/test_two_ranks.py::test_ranks_train_one_model_and_a_resume_equals_an_uninterrupted_run[lightning-regression]",
        "frameworks/test_lightning_trainer.py::test_a_resume_from_every_step_equals_an_uninterrupted_run",
        f"{NETWORK}::{SWEEP}[lightning]",
        f"{NETWORK}::{SWEEP}[lightning]",
        "frameworks/test_lightning_trainer.py::TestLightning",
    ),
    "transformers": (
        f"{NETWORK}::{SWEEP}[transformers]",
        f"{NETWORK}::{OTHER}[transformers-regression]",
        "frameworks/test_two_ranks.py::test_ranks_train_one_model_and_a_resume_equals_an_uninterrupted_run[transformers-regression]",
        "frameworks/test_transformers_trainer.py::test_a_resume_from_every_step_equals_an_uninterrupted_run",
        f"{NETWORK}::{SWEEP}[transformers]",
        f"{NETWORK}::{SWEEP}[transformers]",
        "frameworks/test_transformers_trainer.py::TestTransformers",
    ),
    "command": (
        f"{SCRIPT}[binary]",
        f"{SCRIPT}[regression]",
        "test_command.py::test_a_script_for_torchrun_runs_on_two_ranks_and_the_scheduler_stops_it",
        f"trainers/test_command_trainer.py::TestCommand::{RESUMED}",
        f"{SCRIPT}[binary]",
        f"{SCRIPT}[binary]",
        "trainers/test_command_trainer.py::TestCommand",
    ),
    "trainable": (
        CLASS,
        "trainers/test_trainable_trainer.py::TestFiles",
        None,
        f"trainers/test_trainable_trainer.py::TestDict::{RESUMED}",
        CLASS,
        CLASS,
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


def test_the_page_has_the_table_of_all_trainers():
    assert set(CELLS) == set(trainer_names())
    assert table() in (REPO / "docs" / "how-to" / "trainers.md").read_text()


@pytest.mark.frameworks
@pytest.mark.timeout(200)
def test_each_cell_has_a_test(tmp_path):
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
