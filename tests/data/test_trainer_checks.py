"""The names in `params` are checked with the estimator before a sweep starts."""

from __future__ import annotations

import pytest

import sweeps
from sweeps.core.errors import InputError
from sweeps.data.trainer_checks import check_parameters
from sweeps.space import load

SPACE = """\
trainer: {{estimator: "{estimator}"}}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {{metric: valid-accuracy, goal: maximize}}
limits: {{max_trials: 2}}
space:
  params: {params}
"""
MODELS = """\
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

def scaled(): return make_pipeline(StandardScaler(), LogisticRegression())
def chosen(kind): return make_pipeline(LogisticRegression())
def any_arguments(**given): return LogisticRegression(**given)
ready = scaled()
"""
FOREST = "sklearn.ensemble:RandomForestClassifier"


def problems(folder, estimator: str, params: str) -> list[str]:
    (folder / "check_models.py").write_text(MODELS)
    (folder / "space.yaml").write_text(SPACE.format(estimator=estimator, params=params))
    return [
        f"{problem.place}: {problem.text}"
        for problem in check_parameters(load(folder / "space.yaml"))
    ]


@pytest.mark.parametrize(
    ("estimator", "params", "wrong"),
    [
        (FOREST, "{n_estimators: 3, max_depth: {choice: [2, null]}}", []),
        (FOREST, "{n_estimator: 3, max_depht: {choice: [2, 3]}}", ["n_estimator", "max_depht"]),
        (FOREST, "{choice: [{n_estimators: 3}, {max_depht: 2}]}", ["max_depht"]),
        ("check_models:scaled", "{logisticregression__C: 1.0, C: 1.0}", ["C"]),
        ("check_models:ready", "{logisticregression__C: 1.0, C: 1.0}", ["C"]),
        ("check_models:chosen", "{kind: a, svc__C: 1.0}", []),
        ("check_models:any_arguments", "{C: 1.0, D: 1.0}", []),
        ("sklearn.ensemble:VotingClassifier", "{anything: 1}", []),
    ],
)
def test_names_that_the_estimator_lacks(tmp_path, estimator, params, wrong):
    found = problems(tmp_path, estimator, params)
    assert [text.partition(":")[0] for text in found] == [f"params.{name}" for name in wrong]
    assert all(f" is not a parameter of `{estimator}`; " in text for text in found)
    assert not found or "did you mean `" in found[0]


def test_run_lists_all_wrong_names_with_their_places_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problems(tmp_path, FOREST, "{n_estimator: 3, max_depht: 2}")
    with pytest.raises(InputError) as caught:
        sweeps.run("space.yaml")
    assert str(caught.value).splitlines() == [
        (
            f"space.yaml:6:25: params.n_estimator: is not a parameter of `{FOREST}`; did you mean "
            "`n_estimators`?"
        ),
        (
            f"space.yaml:6:39: params.max_depht: is not a parameter of `{FOREST}`; did you mean "
            "`max_depth`?"
        ),
    ]
    assert not (tmp_path / "sweeps-runs").exists()
