"""Metrics of objectives are checked before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps import space as space_file
from sweeps.data.checks.metric_checks import check_metric_functions, check_metrics

SPACE = """\
trainer: {trainer}
data: {{train: "sklearn:wine", label: target, valid: 0.2}}
objective: {{metric: {metric}, goal: {goal}}}
limits: {{max_trials: 2}}
space: {{params: {{{params}}}}}
"""


OWN_LOOP = '{loop: "tests.user_loops:plain", backend: none}'
PARAMS = {"torch_tabular": "lr: {choice: [0.1, 0.2]}"}


def read(
    tmp_path: Path,
    metric: str,
    trainer: str = "xgboost",
    params: str | None = None,
    goal: str = "minimize",
) -> space_file.Space:
    file = tmp_path / "own.yaml"
    params = params or PARAMS.get(trainer, "eta: {choice: [0.1, 0.2]}")
    file.write_text(SPACE.format(metric=metric, trainer=trainer, params=params, goal=goal))
    return space_file.load(file)


def messages(tmp_path: Path, metric: str, task: str | None, **keys: str) -> list[str]:
    return [f"{p.place}: {p.text}" for p in check_metrics(read(tmp_path, metric, **keys), task)]


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
def test_metrics_of_our_trainers_may_be_the_objective(
    tmp_path: Path, trainer: str, task: str | None, metrics: Any
) -> None:
    assert not [
        line for metric in metrics for line in messages(tmp_path, metric, task, trainer=trainer)
    ]


def test_a_metric_of_another_task_is_refused_with_metrics_of_this_task(tmp_path: Path) -> None:
    (line,) = messages(tmp_path, "valid-logloss", "regression")
    assert line.startswith(
        "objective.metric: `valid-logloss` is a metric for a classification, but this label is "
        "for a regression ("
    )
    assert line.endswith("; choose from valid-rmse, valid-mae, valid-rmsle")
    (line,) = messages(tmp_path, "valid-map", "multiclass")
    assert line.endswith(
        "but this label is for more than two classes; choose from valid-mlogloss, valid-merror, "
        "valid-auc"
    )


@pytest.mark.parametrize(
    ("objective", "task", "ends"),
    [
        ("binary:logistic", "multiclass", "but the label has more than two classes"),
        ("multi:softprob", "binary", "but the label has two classes"),
        ("multiclass", "regression", "but the label has a regression"),
    ],
)
def test_an_objective_of_another_task_is_refused(
    tmp_path: Path, objective: str, task: str, ends: str
) -> None:
    params = f'eta: {{uniform: [0, 1]}}, objective: "{objective}"'
    (line,) = messages(tmp_path, "valid-logloss", task, params=params)
    assert line.startswith("params.objective: ") and ends in line


def test_a_misspelt_metric_gets_the_nearest_name(tmp_path: Path) -> None:
    assert messages(tmp_path, "valid-acuracy", "binary") == [
        (
            "objective.metric: `valid-acuracy` is not a metric of this trainer; did you mean "
            "`valid-accuracy`?"
        )
    ]


@pytest.mark.parametrize("trainer", ["xgboost", "torch_tabular"])
@pytest.mark.parametrize(
    "task, metrics",
    [
        (
            "binary",
            [
                "valid-balanced_accuracy",
                "valid-roc_auc",
                "valid-roc_auc_ovr",
                "valid-neg_log_loss",
                "valid-f1",
            ],
        ),
        (
            "multiclass",
            [
                "valid-top_k_accuracy",
                "valid-neg_brier_score",
                "valid-f1_weighted",
                "valid-f1",
                "valid-auc",
            ],
        ),
        ("regression", ["valid-r2", "valid-neg_median_absolute_error", "valid-mse"]),
    ],
)
def test_scorers_of_scikit_learn_may_be_the_objective(
    tmp_path: Path, trainer: str, task: str, metrics: Any
) -> None:
    assert not [
        line
        for metric in metrics
        for line in messages(tmp_path, metric, task, goal="maximize", trainer=trainer)
    ]


@pytest.mark.parametrize(
    "metric, task, text",
    [
        (
            "valid-roc_auc",
            "multiclass",
            "is a metric for two classes, but this label is for more than two classes; choose from",
        ),
        (
            "valid-neg_log_loss",
            "regression",
            "is a metric for a classification, but this label is for a regression",
        ),
        (
            "valid-neg_mean_squared_error",
            "binary",
            "is a metric for a regression, but this label is for two classes; choose from",
        ),
        (
            "valid-rand_score",
            "binary",
            "is a metric for a clustering, but this label is for two classes; choose from",
        ),
        (
            "valid-f1_samples",
            "multiclass",
            (
                "is a metric for several labels in each row, but this label is for more than two "
                "classes;"
            ),
        ),
        (
            "valid-balanced_acuracy",
            "binary",
            "is not a metric of this trainer; did you mean `valid-balanced_accuracy`?",
        ),
        (
            "balanced_accuracy",
            "binary",
            "is not a metric of this trainer; did you mean `valid-balanced_accuracy`?",
        ),
        ("auc", "binary", "is not a metric of this trainer; did you mean `valid-auc`?"),
        ("valid_auc", "binary", "is not a metric of this trainer; did you mean `valid-auc`?"),
        ("acuracy", "binary", "is not a metric of this trainer; did you mean `valid-accuracy`?"),
        (
            "zz",
            "regression",
            "valid: valid-rmse, valid-mae, or `valid-` and the name of a scorer of scikit-learn",
        ),
    ],
)
def test_a_scorer_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, metric: str, task: str, text: str
) -> None:
    (line,) = messages(tmp_path, metric, task, goal="maximize", trainer="torch_tabular")
    assert line.startswith(f"objective.metric: `{metric}` is") and text in line and "\n" not in line


def test_only_the_usual_metrics_of_a_task_are_listed(tmp_path: Path) -> None:
    (line,) = messages(tmp_path, "z", "binary")
    usual = "valid-logloss, valid-error, valid-auc, valid-aucpr, valid-accuracy, valid-rmse"
    assert line.endswith(
        f"valid: {usual}, ..., or `valid-` and the name of a scorer of scikit-learn"
    )


def test_a_scorer_that_is_minimized_is_refused(tmp_path: Path) -> None:
    assert messages(tmp_path, "valid-neg_log_loss", "binary") == [
        (
            "objective.goal: `valid-neg_log_loss` is a scorer of scikit-learn, and a higher value "
            "is "
            "better; write `goal: maximize`"
        )
    ]
    assert not messages(tmp_path, "valid-accuracy", "binary"), "a metric of our own table"


def test_scorers_are_not_metrics_of_a_trainer_that_does_not_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_metrics_only.py").write_text(
        'TRAINER = {"metrics": {"binary": ["valid-loss"]}}\n\n\ndef train_func(config): ...\n'
    )
    (line,) = messages(
        tmp_path, "valid-balanced_accuracy", "binary", trainer="own_metrics_only", params="lr: 0.1"
    )
    assert (
        line
        == "objective.metric: `valid-balanced_accuracy` is not a metric of this trainer; valid: "
        "valid-loss"
    )


def test_metrics_of_the_users_code_are_not_checked(tmp_path: Path) -> None:
    literal = (
        '{"metrics": {"binary": ["valid-loss"]}, "all_metrics": True, "additional_metrics": True}'
    )
    (tmp_path / "metrics_of_users.py").write_text(
        f"TRAINER = {literal}\n\n\ndef train_func(config): ...\n"
    )
    trainer = {"trainer": "metrics_of_users", "params": "lr: 0.1"}
    assert not messages(tmp_path, "valid-mine", "binary", **trainer)
    (line,) = messages(tmp_path, "valid-neg_log_loss", "binary", **trainer)
    assert line.endswith("write `goal: maximize`")


@pytest.mark.parametrize(
    "params", ["objective: reg:gamma", "eval_metric: ndcg", "objective: {choice: [a, b]}"]
)
def test_metrics_are_not_checked_if_params_set_an_objective_of_xgboost(
    tmp_path: Path, params: str
) -> None:
    assert not messages(tmp_path, "valid-ndcg", "regression", params=params)


def test_metrics_with_a_threshold_are_left_to_xgboost(tmp_path: Path) -> None:
    assert not messages(tmp_path, "valid-error@0.7", "binary")


def test_metrics_of_a_trainer_without_a_table_are_not_checked(tmp_path: Path) -> None:
    assert not messages(tmp_path, "mine", "binary", trainer=OWN_LOOP)


def test_a_metric_function_is_imported_by_run_and_not_by_validate(tmp_path: Path) -> None:
    marker = tmp_path / "imported"
    (tmp_path / "my_metrics_checked.py").write_text(
        f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
        "\n\ndef score(y, p):\n    return 0.5\n\n\n"
        "number = 3\n"
    )
    space = read(tmp_path, '"my_metrics_checked:score"', OWN_LOOP)
    assert space.objective.metric == "my_metrics_checked:score" and not marker.exists()
    assert check_metric_functions(space) == [] and marker.exists()


@pytest.mark.parametrize(
    "metric, text",
    [
        (
            "my_metrics_refused:scores",
            "`my_metrics_refused` has no `scores`; the module defines: score",
        ),
        (
            "my_metrics_refused:number",
            (
                "`my_metrics_refused:number` has the type int, but must be a function of labels "
                "and "
                "predictions"
            ),
        ),
        ("my_metrics_absent:score", "no module `my_metrics_absent`"),
        (
            "my_metrics_broken:score",
            "`my_metrics_broken:score` cannot be imported: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_metric_function_that_cannot_be_used_is_refused(
    tmp_path: Path, metric: str, text: str
) -> None:
    (tmp_path / "my_metrics_refused.py").write_text(
        "number = 3\n\n\ndef score(y, p):\n    return 0.5\n"
    )
    (tmp_path / "my_metrics_broken.py").write_text("1 / 0\n")
    (problem,) = check_metric_functions(read(tmp_path, f'"{metric}"', OWN_LOOP))
    assert problem.place == "objective.metric" and text in problem.text
