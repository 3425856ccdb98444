from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.space import load
from sweeps.space.model.settings_texts import settings_of

SPACE = """\
name: made
trainer: xgboost
data: {train: "hdfs://me:secret@host/rows.csv", label: target, valid: 0.25, drop: [ash]}
objective: {metric: valid-mlogloss, goal: minimize}
scheduler: {name: asha, max_t: 50}
limits: {max_trials: 8}
runtime_env: {env_vars: {TOKEN: hunter2hunter2}}
space:
  preprocessor:
    grid: [none, [{SimpleImputer: {strategy: most_frequent}}, StandardScaler]]
  params:
    eta: {loguniform: [1e-3, 0.5]}
    booster: {choice: [gbtree, dart]}
"""


def settings(folder: Path, old: str = "made", new: str = "made", *overrides: str) -> dict[str, str]:
    file = folder / "made.yaml"
    file.write_text(SPACE.replace(old, new))
    return settings_of(load(file, overrides))


def test_settings_are_texts_without_passwords_and_with_overrides(tmp_path: Path) -> None:
    texts = settings(tmp_path, "made", "made", "limits.max_trials=9")
    expected = {
        "trainer": "xgboost",
        "data.train": "hdfs://me:***@host/rows.csv",
        "data.drop": "[ash]",
        "scheduler.max_t": "50",
        "search.seed": "0",
        "limits.max_trials": "9",
        "params.eta": "{loguniform: [1e-3, 0.5]}",
    }
    assert "hunter2" not in str(texts)
    assert {name: texts.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("[1e-3, 0.5]", "[1e-3, 0.6]", "params.eta"),
        ("strategy: most_frequent", "strategy: mean", "preprocessor.grid"),
        ("valid: 0.25", "valid: 0.2", "data.valid"),
        ("max_t: 50", "max_t: 40", "scheduler.max_t"),
        ("    booster: {choice: [gbtree, dart]}\n", "", "params.booster"),
    ],
)
def test_a_change_of_the_file_changes_only_its_own_setting(
    tmp_path: Path, old: str, new: str, key: str
) -> None:
    before, after = settings(tmp_path), settings(tmp_path, old, new)
    differing = {name for name in before | after if before.get(name) != after.get(name)}
    assert differing == {key}
