from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.space import load
from sweeps.sweep_report.space_settings import settings_of

SPACE = """\
name: made
trainer: xgboost
data: {train: "sklearn:wine", label: target, valid: 0.25, test: {column: part, value: test}}
objective: {metric: valid-mlogloss, goal: minimize}
scheduler: {name: asha, max_t: 50}
limits: {max_trials: 8, timeout: 1h}
space:
  preprocessor:
    grid: [none, [{SimpleImputer: {strategy: most_frequent}}, StandardScaler]]
  params:
    eta: {loguniform: [1e-3, 0.5]}
    booster: {choice: [gbtree, dart]}
    rate: {uniform: [0, 1], when: {params.booster: dart}}
    fixed: 3
    nested: {choice: [{kind: a, size: {randint: [1, 9]}}, {kind: b}]}
    nothing: null
"""


def settings(folder: Path, *changes: tuple[str, str]) -> dict[str, str]:
    text = SPACE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = folder / "made.yaml"
    file.write_text(text)
    return settings_of(load(file))


def test_every_section_has_its_settings(tmp_path):
    found = settings(tmp_path)
    expected = {
        "trainer": "xgboost",
        "data.train": "sklearn:wine",
        "data.valid": "fraction 0.25",
        "data.test": "column, column part, value test",
        "objective": "minimize valid-mlogloss",
        "scheduler": "asha",
        "scheduler.max_t": "50",
        "limits.max_trials": "8",
        "limits.timeout": "3600.0",
        "limits.patience": "none",
        "params.eta": "loguniform 0.001 to 0.5",
        "params.rate": "uniform 0 to 1 if params.booster is dart",
        "params.fixed": "3",
        "params.nothing": "none",
    }
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("[1e-3, 0.5]", "[1e-3, 0.6]", {"params.eta"}),
        (
            "strategy: most_frequent",
            "strategy: mean",
            {"preprocessor[SimpleImputer+StandardScaler].0.strategy"},
        ),
        ("[1, 9]", "[1, 8]", {"params.nested.choice.0.size"}),
        ("fixed: 3", "fixed: 4", {"params.fixed"}),
        ("valid: 0.25", "valid: 0.2", {"data.valid"}),
        ("max_trials: 8", "max_trials: 9", {"limits.max_trials"}),
        ("params.booster: dart", "params.booster: gbtree", {"params.rate"}),
        ("max_t: 50", "max_t: 40", {"scheduler.max_t"}),
        ("    nothing: null\n", "", {"params.nothing"}),
    ],
)
def test_a_change_of_the_file_changes_only_its_own_settings(tmp_path, old, new, keys):
    before, after = settings(tmp_path), settings(tmp_path, (old, new))
    assert {name for name in before | after if before.get(name) != after.get(name)} == keys


def test_a_default_is_equal_to_the_same_value_in_the_file(tmp_path):
    assert settings(tmp_path, ("max_trials: 8", "max_trials: 8, max_failures: 2")) == settings(
        tmp_path
    )


def test_no_password_is_shown(tmp_path):
    found = settings(tmp_path, ('"sklearn:wine"', '"hdfs://me:secret@host/rows.csv"'))
    assert found["data.train"] == "hdfs://me:***@host/rows.csv"
