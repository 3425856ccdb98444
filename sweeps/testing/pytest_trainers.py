"""Conformance suite for trainers.

Subclass `TrainerTests` in a test file, and pytest runs the tests on your trainer.

class TestMyTrainer(TrainerTests):
    module = "my_trainer"
    params = {"lr": 0.1}
    task = "regression"

The suite runs the training loop in the test's process, on a small numeric table. It does not start
Ray.
"""

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from sweeps.core.loop_context import CHECK_PREDICTIONS, Current
from sweeps.core.plugins import references
from sweeps.space.sections.trainer_definition import TrainerDefinition, definition_of

from .fake_session import FakeShard, LoopRun, run_loop, small_table


class TrainerTests:
    """Tests that every trainer must pass.

    Attributes:
        module: Dotted name of the trainer's module, which defines a `TRAINER` literal.
        params: Parameters with which the loop makes at least three reports.
        options: Options of the trainer, as in the section `trainer` of a space file; missing
            options get their defaults.
        task: Task of the table: "binary", "multiclass" or "regression".
        metric: The objective's metric. None selects the first metric that `TRAINER["metrics"]`
            lists for the task.
        goal: `minimize` or `maximize`, the direction of the metric.
    """

    module: ClassVar[str]
    params: ClassVar[dict[str, Any]] = {}
    options: ClassVar[dict[str, Any]] = {}
    task: ClassVar[str] = "binary"
    metric: ClassVar[str | None] = None
    goal: ClassVar[str] = "minimize"

    @pytest.fixture
    def definition(self) -> TrainerDefinition:
        """The trainer's `TRAINER` literal."""
        return definition_of(self.module)

    @pytest.fixture
    def implementation(self) -> ModuleType:
        """The imported module of the trainer."""
        return importlib.import_module(self.module)

    def run(
        self,
        folder: Path,
        *,
        resume: Path | None = None,
        stop_at: int | None = None,
        **changed: Any,
    ) -> LoopRun:
        """Run the loop in this process.

        Args:
            folder: An existing folder for checkpoints.
            resume: Folder of the checkpoint from which the loop continues; None starts a new run.
            stop_at: Number of the report at which the loop is stopped; None lets the loop end by
                itself.
            **changed: New values for attributes of `Current`, by name.
        """
        current, shards = self.table()
        loop = references.resolve(f"{self.module}:{definition_of(self.module).loop}")
        return run_loop(
            loop,
            dict(self.params),
            current(**changed),
            shards,
            folder,
            resume=resume,
            stop_at=stop_at,
        )

    def table(self) -> tuple[Callable[..., Current], dict[str, FakeShard]]:
        """Return the pair (function that makes a `Current`, shards); see `small_table`."""
        make, shards = small_table(self.task)

        def current(**changed: Any) -> Current:
            metric = self.objective()
            default_options = {
                name: fragment.get("default")
                for name, fragment in definition_of(self.module).options.items()
            }
            attributes = {
                "metric": metric,
                "asked": (metric,),
                "goal": self.goal,
                "checkpoint_interval": 0.0,
                "options": default_options | self.options,
            }
            return make(**attributes | changed)

        return current, shards

    def objective(self) -> str:
        """Return the metric of the objective."""
        return self.metric or self.promised()[0]

    def promised(self) -> list[str]:
        """Return the metrics that `TRAINER["metrics"]` lists for the task, with their splits.

        An example is `valid-logloss`.
        """
        metrics: dict[Any, tuple[str, ...]] = dict(definition_of(self.module).metrics)
        names = metrics.get(self.task, ())
        return [
            name if name.startswith(("valid-", "train-")) else f"valid-{name}" for name in names
        ]

    def test_the_literal_is_valid(
        self, definition: TrainerDefinition, implementation: ModuleType
    ) -> None:
        """The `TRAINER` literal is valid, and the functions that it names exist."""
        assert callable(getattr(implementation, definition.loop))
        assert definition.load is None or callable(getattr(implementation, definition.load))
        unknown = set(self.params) - set(definition.parameters)
        assert definition.additional_parameters or not unknown, (
            f'`params` has names that TRAINER["parameters"] lacks: {unknown}'
        )

    def test_every_step_reports_the_objective(self, tmp_path: Path) -> None:
        """Every report has a number for the objective's metric."""
        run = self.run(tmp_path)
        assert len(run.metrics) >= 3, (
            "give `params` with which the loop makes at least three reports"
        )
        assert all(isinstance(metrics[self.objective()], (int, float)) for metrics in run.metrics)

    def test_the_promised_metrics_are_reported(self, tmp_path: Path) -> None:
        """The loop reports the metrics that `TRAINER["metrics"]` lists for the task.

        Each of these metrics is reported if the space file asks for it.
        """
        for number, name in enumerate(self.promised()):
            folder = tmp_path / str(number)
            folder.mkdir()
            run = self.run(folder, metric=name, asked=(name,), stop_at=1)
            assert name in run.metrics[0], (
                f"TRAINER promises `{name}`, but the loop reports {sorted(run.metrics[0])}"
            )

    def test_weights_count(self, tmp_path: Path, definition: TrainerDefinition) -> None:
        """If `TRAINER["weights"]` is True, other weights of the rows give another model."""
        if not definition.weights:
            pytest.skip("the trainer does not use weights of rows")
        current, shards = self.table()
        loop = references.resolve(f"{self.module}:{definition.loop}")
        train = shards["train"].frame
        metrics = []
        for period in (4, 7):  # two different columns of weights
            folder = tmp_path / str(period)
            folder.mkdir()
            weights = np.arange(len(train)) % float(period)
            weighted = {**shards, "train": FakeShard(train.assign(sample_weight=weights))}
            # An empty cache, because the rows of the first run would be used again.
            context = current(weight="sample_weight", _cached_objects={})
            metrics.append(run_loop(loop, dict(self.params), context, weighted, folder).metrics)
        assert metrics[0] != metrics[1], (
            "the loop does not use the column `Current.weight` of train"
        )

    def test_a_scorer_of_scikit_learn_is_reported(
        self, tmp_path: Path, definition: TrainerDefinition
    ) -> None:
        """If `TRAINER["all_metrics"]` is True, the loop reports a scorer of scikit-learn."""
        if not definition.all_metrics:
            pytest.skip("the trainer reports only the metrics that it lists")
        name = "valid-r2" if self.task == "regression" else "valid-balanced_accuracy"
        run = self.run(tmp_path, metric=name, asked=(name,), goal="maximize", stop_at=1)
        assert name in run.metrics[0], (
            f"the loop reports {sorted(run.metrics[0])}, but not `{name}`"
        )

    def test_the_same_seed_repeats_the_numbers(self, tmp_path: Path) -> None:
        """Two runs with the same seed report the same numbers."""
        (tmp_path / "first").mkdir()
        (tmp_path / "second").mkdir()
        assert self.run(tmp_path / "first").metrics == self.run(tmp_path / "second").metrics

    def test_a_resumed_run_equals_an_uninterrupted_one(self, tmp_path: Path) -> None:
        """A resumed loop makes the same reports as an uninterrupted run.

        The loop resumes from each checkpoint. The reports after that checkpoint are compared.
        """
        (tmp_path / "whole").mkdir()
        whole = self.run(tmp_path / "whole")
        assert whole.checkpoints, (
            "the loop reports no checkpoint, so a lost worker would cost the whole trial"
        )
        for step, checkpoint in whole.checkpoints.items():
            folder = tmp_path / f"from-{step}"
            folder.mkdir()
            assert self.run(folder, resume=checkpoint).metrics == whole.metrics[step:]

    def test_a_stop_ends_the_loop(self, tmp_path: Path) -> None:
        """The loop does not catch the exception with which `ray.train.report` stops the loop."""
        assert len(self.run(tmp_path, stop_at=2).metrics) == 2

    def test_max_t_ends_the_loop(self, tmp_path: Path) -> None:
        """The report at `max_t` has a checkpoint.

        The loop need not end at `max_t` by itself, because sweeps stops it there.
        """
        run = self.run(tmp_path, max_t=2, stop_at=2)
        assert 2 in run.checkpoints

    def test_load_predicts_rows(self, tmp_path: Path, definition: TrainerDefinition) -> None:
        """The model that `load` returns predicts a finite array of shape (n,) or (n, classes).

        If the checkpoint has predictions for the check rows, which the loop made with the model in
        memory, the loaded model predicts the same.
        """
        if definition.load is None:
            pytest.skip("the trainer has no `load`")
        current, shards = self.table()
        run = self.run(tmp_path)
        folder = run.checkpoints[max(run.checkpoints)]
        model = references.resolve(f"{self.module}:{definition.load}")(str(folder))
        rows = shards["valid"].frame.drop(columns=current().label)
        predictions = np.asarray(model.predict(rows))
        assert predictions.shape in ((len(rows),), (len(rows), len(current().classes or ())))
        assert np.isfinite(predictions.astype(float)).all()
        np.testing.assert_allclose(
            np.asarray(model.predict(rows.iloc[:5])), predictions[:5], rtol=1e-5
        )
        stored_predictions = folder / CHECK_PREDICTIONS
        if stored_predictions.exists():
            np.testing.assert_array_equal(
                np.asarray(model.predict(current().check)), np.load(stored_predictions)
            )

    def test_resume_files_are_not_needed_to_predict(
        self, tmp_path: Path, definition: TrainerDefinition
    ) -> None:
        """`load` works without the files and folders that `TRAINER["resume_files"]` names.

        A bundle does not contain them.
        """
        if definition.load is None:
            pytest.skip("the trainer has no `load`")
        run = self.run(tmp_path)
        folder = run.checkpoints[max(run.checkpoints)]
        for name in definition.resume_files:
            for path in folder.glob(name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        references.resolve(f"{self.module}:{definition.load}")(str(folder))
