"""The objective's metric is held against the label's task before anything is trained."""

from __future__ import annotations

import pytest

from sweeps import space as space_file
from sweeps.data.metric_checks import check_metrics

SPACE = """\
trainer: {trainer}
data: {{train: "sklearn:wine", label: target, valid: 0.2}}
objective: {{metric: {metric}, goal: minimize}}
limits: {{max_trials: 2}}
space: {{params: {{{params}}}}}
"""


def told(tmp_path, metric: str, task: str | None, trainer: str = "xgboost", params: str = "eta: {uniform: [0.1, 0.2]}") -> list[str]:
    file = tmp_path / "own.yaml"
    file.write_text(SPACE.format(metric=metric, trainer=trainer, params=params))
    return [f"{p.place}: {p.text}" for p in check_metrics(space_file.load(file), task)]


@pytest.mark.parametrize("trainer", ["xgboost", "torch_tabular"])
@pytest.mark.parametrize(
    "task, metrics",
    [
        ("binary", ["valid-logloss", "valid-auc", "valid-accuracy", "valid-error"]),
        ("multiclass", ["valid-mlogloss", "valid-merror", "valid-accuracy"]),
        ("regression", ["valid-rmse", "valid-mae"]),
        (None, ["whatever"]),
    ],
)
def test_what_the_trainers_report_may_be_the_objective(tmp_path, trainer, task, metrics):
    assert not [line for metric in metrics for line in told(tmp_path, metric, task, trainer)]


def test_a_metric_of_another_task_is_refused_with_those_of_this_one(tmp_path):
    (line,) = told(tmp_path, "valid-logloss", "regression")
    assert line.startswith("objective.metric: `valid-logloss` is for two classes, but the label makes it a regression (")
    assert line.endswith("; such as valid-rmse, valid-mae, valid-rmsle")
    (line,) = told(tmp_path, "valid-logloss", "multiclass")
    assert line.endswith("but the label makes it more than two classes; such as valid-mlogloss, valid-merror, valid-auc")


def test_a_misspelt_metric_is_told_the_nearest(tmp_path):
    assert told(tmp_path, "valid-acuracy", "binary") == [
        "objective.metric: `valid-acuracy` is not known to the trainer; did you mean `valid-accuracy`?"
    ]


@pytest.mark.parametrize("params", ["objective: rank:pairwise", "eval_metric: ndcg", "objective: {choice: [a, b]}"])
def test_who_gives_xgboost_an_objective_of_his_own_is_not_held_to_the_table(tmp_path, params):
    assert not told(tmp_path, "valid-ndcg", "regression", params=params)


def test_metrics_with_a_threshold_are_xgboosts_business(tmp_path):
    assert not told(tmp_path, "valid-error@0.7", "binary")


def test_a_users_trainer_says_nothing_and_is_believed(tmp_path):
    assert not told(tmp_path, "mine", "binary", trainer='{loop: "tests.user_loops:plain", backend: none}')
