"""Sweeps that have ended, written without Ray: linear models in JSON files, each with the
preprocessor of its trial.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeps import space as space_file
from sweeps.bundle.averaging import to_numbers
from sweeps.core import metrics
from sweeps.core.files.prediction_files import KeptPredictions
from sweeps.core.files.sweep_folder import PREDICTIONS
from sweeps.core.label_columns import label_columns
from sweeps.core.loop_context import CHECK_PREDICTIONS
from sweeps.core.trial import Checkpoint, Report, State, Trial
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.preprocessing.fit import data_key, fit_transform
from sweeps.data.preprocessing.fitted_chain import FittedChain
from sweeps.data.splits.split_tables import Splits
from sweeps.data.splits.valid_rows import valid_rows
from sweeps.data.splits.variants import DataVariants
from sweeps.search.search_loop import SearchLoop
from sweeps.space import Space
from sweeps.space.model.templates import tuned_data
from sweeps.space.python.saved_space import save_space, saved_space
from sweeps.study.events import TrialReported
from sweeps.study.study_store import StudyStore

MODULE = """
    import json
    from pathlib import Path
    import numpy as np
    import pandas as pd

    def train(config):
        raise NotImplementedError

    def load(folder):
        facts = json.loads(Path(folder, "model.json").read_text())
        if facts["kind"] == "broken":
            raise RuntimeError("the file is damaged")
        return Model(**facts)

    class Model:
        def __init__(self, kind, weights, columns):
            self.kind, self.weights, self.columns = kind, np.array(weights), columns

        def predict(self, features):
            assert list(features.columns) == self.columns, list(features.columns)
            x = np.nan_to_num(features.to_numpy("float64"))
            z = np.stack([(x * w).sum(axis=1) for w in \
self.weights.reshape(-1, x.shape[1])], axis=1)
            if self.kind == "number":
                return z[:, 0]
            if self.kind == "several":
                return 1 / (1 + np.exp(-z))
            if z.shape[1] > 1:
                e = np.exp(z - z.max(axis=1, keepdims=True))
                return e / e.sum(axis=1, keepdims=True)
            p = 1 / (1 + np.exp(-z[:, 0]))
            return (p > 0.5).astype(int) if self.kind == "codes" else p

    def two_labels():
        from sklearn.datasets import load_iris
        frame = load_iris(as_frame=True).frame.drop(columns="target")
        long, wide = frame["petal length (cm)"] > 4, frame["sepal width (cm)"] > 3
        return frame.assign(long=long.astype(int), wide=wide.astype(int))
"""


@dataclass
class RecordedSweep:
    """A sweep that has ended: its folder, and what an ensemble is made of."""

    folder: Path
    space: Space
    roots: tuple[Path, ...]
    store: StudyStore
    variants: DataVariants
    outputs: dict[int, np.ndarray] = field(
        default_factory=dict
    )  # each model's predictions for valid

    @property
    def labels(self) -> np.ndarray:
        splits = next(iter(self.variants.sources.values()))
        columns = [splits.valid.column(name).to_numpy() for name in label_columns(splits.label)]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)


def space_text(module: str, source: str, label: str, metric: str, goal: str, more: str) -> str:
    return textwrap.dedent(
        f"""\
        name: models
        trainer: {{loop: "{module}:train", load: "{module}:load", backend: none}}
        data: {{train: {source if source.startswith("{") else f'"{source}"'}, \
label: {label}, valid: 0.3, test: 0.2{more}}}
        objective: {{metric: "{metric}", goal: {goal}}}
        search: {{algorithm: random}}
        limits: {{max_trials: 8}}
        trackers: []
        space:
          preprocessor: {{grid: [[], [{{"sklearn.preprocessing:StandardScaler": {{}}}}]]}}
          params: {{eta: {{uniform: [0, 1]}}}}
        """
    )


def recorded_sweep(
    root: Path,
    monkeypatch: Any,
    *,
    source: str = "sklearn:breast_cancer",
    label: str = "target",
    metric: str = "logloss",
    goal: str = "minimize",
    more: str = ", drop: {grid: [[], [mean radius, worst area]]}",
    kinds: Sequence[str] = ("scores",) * 6,
    check: bool = True,
    seed: int = 0,
) -> RecordedSweep:
    """Write a sweep with a trial for each of `kinds`.

    Its models are random directions that are better than nothing.

    Args:
        root: an empty folder.
        kinds: what each trial's model predicts: "scores", "codes", "number", "several" or "broken".
        check: True to store predictions with the checkpoints, as trainers do.
        seed: seed of the models.
    """
    root.mkdir(exist_ok=True)
    module = f"ensemble_models_{abs(hash(str(root))) % 10**9}"
    (root / f"{module}.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(root))
    file = root / "models.yaml"
    file.write_text(space_text(module, source.replace("MODULE", module), label, metric, goal, more))
    space = space_file.load(file, ())
    folder = root / "runs" / "models-1"
    folder.mkdir(parents=True)
    save_space(folder, space, 0.0)
    variants = DataVariants(
        space.data,
        space.variants or (space.data,),
        space.search.seed,
        tuple(tuned_data(space.sections)),
    )
    loop, prepared, generator = (
        SearchLoop.open(folder, space),
        PreparedStore(folder),
        np.random.default_rng(seed),
    )
    loop.store.record_data(variants.fingerprint)
    outputs = {}
    for i, kind in enumerate(kinds):
        trial = loop.ask()
        assert trial is not None
        splits = variants.splits(trial.data)
        checked = splits.valid.slice(0, 32).select(list(splits.features))
        chain, train = _prepare(prepared, variants, trial, checked)
        path = folder / "trials" / trial.id / "checkpoint_000001"
        path.mkdir(parents=True)
        (path / "model.json").write_text(json.dumps(_model(kind, train, splits, generator)))
        if kind != "broken":
            model = importlib.import_module(module).load(str(path))
            rows = splits.valid.select(list(splits.features)).to_pandas()
            outputs[trial.number] = model.predict(chain.transform(rows))
            KeptPredictions(1, (outputs[trial.number],)).write(path.parent / PREDICTIONS)
            if check:
                np.save(
                    path / CHECK_PREDICTIONS, model.predict(chain.transform(checked.to_pandas()))
                )
        at = Checkpoint(path.name, 1, 1)
        value = _value(metric, splits, outputs.get(trial.number))
        reports = (Report(1, {metric: 0.1 * (i + 1) if value is None else value}, 1.0),)
        loop.store.append(TrialReported(1.0, trial.number, reports, at, at, 1.0))
        loop.store.end(trial.number, State.COMPLETE)
    return reopened(folder, variants, outputs)


def _value(metric: str, splits: Splits, output: np.ndarray | None) -> float | None:
    """Return the score of a model on valid; None if its output has none."""
    if output is None:
        return None
    columns = [splits.valid.column(name).to_numpy() for name in label_columns(splits.label)]
    labels = columns[0] if len(columns) == 1 else np.column_stack(columns)
    numbers = to_numbers(output, splits.task, len(splits.classes or ()))
    with contextlib.suppress(ValueError):  # the output has only classes
        return metrics.score(metric, splits.task, labels, numbers)
    return None


def _prepare(
    prepared: PreparedStore, variants: DataVariants, trial: Trial, checked: pa.Table
) -> tuple[FittedChain, pd.DataFrame]:
    """Fit the preprocessor of a trial, store what an export needs, and return the fitted chain and
    the prepared rows of train.
    """
    splits = variants.splits(trial.data)
    tables = {"train": splits.train, "valid": splits.valid, "test": splits.test}
    rows = {name: table.num_rows for name, table in tables.items() if table is not None}
    about = (
        splits.label,
        splits.task,
        splits.classes,
        splits.features,
        splits.fingerprint,
        rows,
        checked.to_pandas(),
    )
    prepared.save_info(DatasetInfo(*about), checked, trial.data or None)
    prepared.save_valid(valid_rows(splits), trial.data or None)
    whole = next(iter(variants.sources.values()))
    if whole.test is not None:
        prepared.save_table("test", whole.test)
    columns = [*splits.features, *label_columns(splits.label)]
    chain, train = fit_transform(trial.preprocessor, splits.train.select(columns), splits.label)
    prepared.save_chain(data_key(splits.fingerprint, trial.preprocessor), chain)
    return chain, train.drop(columns=list(label_columns(splits.label)))


def _model(
    kind: str, train: pd.DataFrame, splits: Splits, generator: np.random.Generator
) -> dict[str, Any]:
    """Return a linear model that was fitted on some of the columns, which are drawn at random."""
    x = np.nan_to_num(train.to_numpy("float64"))
    y = np.column_stack(
        [splits.train.column(name).to_numpy() for name in label_columns(splits.label)]
    ).astype("float64")
    if splits.task == "multiclass":
        y = np.eye(len(splits.classes or ()))[y[:, 0].astype(int)]
    used = generator.permutation(x.shape[1])[: max(1, x.shape[1] // 3)]
    weights = np.zeros((y.shape[1], x.shape[1]))
    centre, scale = (0.0, 1.0) if kind == "number" else (0.5, 3.0)
    weights[:, used] = scale * np.linalg.lstsq(x[:, used], y - centre, rcond=None)[0].T
    return {"kind": kind, "weights": weights.ravel().tolist(), "columns": list(train.columns)}


def reopened(folder: Path, variants: DataVariants, outputs: dict[int, np.ndarray]) -> RecordedSweep:
    """Return a sweep that is read again from its folder."""
    space, roots = saved_space(folder)
    return RecordedSweep(folder, space, roots, StudyStore(folder, space), variants, outputs)
