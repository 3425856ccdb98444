"""A whole sweep with conditions and data variants, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sweeps
from sweeps.data.prepared_store import PreparedStore
from tests.commands import REPO

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
FILE = REPO / "search_spaces" / "conditional.yaml"
DATA = ("data.drop", "data.rows")


@pytest.fixture(scope="module")
def swept(local_ray: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    result = sweeps.run(FILE, dir=tmp_path_factory.mktemp("conditional"))
    return json.loads(result.as_text())


@pytest.fixture(scope="module")
def trials(swept: Any) -> Any:
    from sweeps.study.record_reader import read

    record = read(Path(swept["dir"]))
    assert record is not None
    return record.trials


def test_inactive_dimensions_are_absent_everywhere(swept: Any, trials: Any) -> None:
    from mlflow.tracking import MlflowClient

    assert swept["trials"]["failed"] == 0 and len(trials) == 16
    for trial in trials:
        dart = trial.params["booster"] == "dart"
        assert ("rate_drop" in trial.params) == ("params.rate_drop" in trial.labels) == dart
        assert ("min_child_weight" in trial.params) == (trial.params["max_depth"] > 3)
        assert ("skip_drop" in trial.params) == (dart and trial.params["rate_drop"] >= 0.1)
        assert ("preprocessor.1" in trial.labels) == (trial.labels["preprocessor.0"] == "none")
    assert {trial.params["booster"] for trial in trials} == {"gbtree", "dart"}
    client = MlflowClient(swept["mlflow"]["tracking_uri"])
    where = f"tags.`mlflow.parentRunId` = '{swept['mlflow']['parent_run']}'"
    experiment = client.get_experiment_by_name("conditional")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], where)
    logged = {run.data.tags["sweeps.trial"]: run.data.params for run in runs}
    assert all(("params.rate_drop" in logged[t.id]) == ("rate_drop" in t.params) for t in trials)
    assert all(set(DATA) <= set(params) for params in logged.values())


def test_a_chain_is_fitted_once_a_variant(swept: Any, trials: Any) -> None:
    def chain(t: Any) -> tuple[Any, ...]:
        """Return the parts of a trial that decide its steps."""
        return tuple(
            (name, value) for name, value in t.labels.items() if name.startswith("preprocessor")
        )

    bare = {("preprocessor.0", "none"), ("preprocessor.1", "none")}
    assert swept["fits"] == len(
        {(*(t.labels[name] for name in DATA), chain(t)) for t in trials if set(chain(t)) != bare}
    )
    assert len({tuple(t.labels[name] for name in DATA) for t in trials}) > 1


def test_the_bundle_belongs_to_the_winners_data_variant(swept: Any, tmp_path: Path) -> None:
    import sklearn.datasets

    from sweeps import load_bundle

    store, data = PreparedStore(Path(swept["dir"])), swept["best"]["data"]
    facts = store.load_info(data)
    assert facts.rows["train"] == pytest.approx(
        data["rows"] * store.load_info().rows["train"], abs=1
    )
    assert facts.rows["valid"] == store.load_info().rows["valid"] and len(
        facts.features
    ) == 13 - len(data["drop"])
    rows = sklearn.datasets.load_wine(as_frame=True)
    raw = rows.data.drop(columns=list(data["drop"]))
    out = load_bundle(swept["bundle"]).predict(pd.DataFrame(raw))
    assert (out["prediction"] == rows.target).mean() > 0.8
    assert swept["best"]["test"] is not None
