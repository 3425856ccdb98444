"""The JSON Schema takes what `load` takes, as far as a schema can tell, and refuses what any editor
should underline.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jsonschema
import pytest

from sweeps.space.model.domains import DOMAINS
from sweeps.space.parse.top_level_keys import TOP
from sweeps.space.schema.json_schema import schema
from sweeps.space.yaml.yaml12 import parse, read_text
from tests.commands import REPO

SPACES = sorted((REPO / "search_spaces").rglob("*.yaml"))
GOOD = {
    "trainer": "xgboost",
    "data": {"train": "d.csv", "valid": 0.2, "label": "y"},
    "objective": {"metric": "valid-logloss", "goal": "minimize"},
}


@pytest.fixture(scope="module")
def valid() -> Any:
    rules = schema()
    jsonschema.Draft202012Validator.check_schema(rules)
    return jsonschema.Draft202012Validator(rules).is_valid


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_the_shipped_spaces_are_valid(valid: Any, file: Any) -> None:
    assert valid(parse(read_text(file, file.name), file.name).plain())


TAKEN = [
    {"repeats": 3},
    {
        "limits": {
            "timeout": "1h",
            "max_concurrent_trials": "auto",
            "patience": 3,
            "target": 0.1,
            "max_gpu_hours": 2,
        }
    },
    {"limits": None, "space": None},
    {"checkpoints": {"per_trial": 1, "top": 5, "max_disk": "10GB"}},
    {"bundle": {"train_on": "all"}},
    {"scheduler": {"name": "hyperband", "max_t": 9, "brackets": 2}},
    {
        "data": {
            "train": {"grid": ["a.csv", {"my:load": {"n": 3}}]},
            "valid": {"time": "t", "last": 0.2},
            "rows": {"uniform": [0.1, 1]},
        }
    },
    {
        "data": {
            "train": "a.csv",
            "valid": "b.csv",
            "drop": {"choice": [[], ["a"]], "when": {"data.rows": "> 0.5"}},
        }
    },
    {
        "space": {
            "params": {
                "eta": {"loguniform": [0.1, 1]},
                "booster": {"choice": ["dart", None]},
                "max_depth": None,
            }
        }
    },
    {"space": {"preprocessor": {"my:Clip": {"quantile": {"uniform": [0, 1]}}}}},
    {"trainer": {"loop": "my:train"}, "space": {"params": {"widht": 8}}},
    {
        "space": {
            "scaling": {"num_workers": {"grid": [1, 2], "when": {"params.a": [1, 2]}}},
            "params": {"a": {"randn": None}},
        }
    },
    {"trainer": "my_trainer"},
    {"trainer": "my_package.trainer"},
    {"trainer": "sklearn.svm:SVC"},
    {"trainer": "sklearn", "objective": {"metric": "valid-my_metric:score", "goal": "maximize"}},
    {
        "limits": {
            "max_trials": "${N}",
            "timeout": "${T:-1h}",
            "max_failures": None,
            "target": "-${X}",
        },
        "repeats": "${R}",
    },
    {
        "trainer": "${TRAINER}",
        "objective": {"metric": "valid-${M}", "goal": "${GOAL}"},
        "search": {"algorithm": "${A:-gp}", "seed": "${S}"},
    },
    {
        "data": {"train": "${D}", "valid": "${V}", "rows": "${R}", "drop_missing_label": "${B}"},
        "checkpoints": {"max_disk": "${DISK}"},
    },
    {
        "space": {
            "params": {
                "eta": "${ETA}",
                "booster": "${B}",
                "max_depth": {"randint": ["${LOW}", "${HIGH:-9}"]},
            }
        }
    },
    {
        "space": {
            "scaling": {"num_workers": "${N}", "resources_per_worker": {"GPU": "${G}"}},
            "preprocessor": ["${STEP}"],
        }
    },
    {"scheduler": {"name": "${S}"}, "trackers": ["${T}"], "constraints": {"seconds": "${C}"}},
    {
        "scheduler": {"name": "my:Scheduler", "anything": 3},
        "search": {"algorithm": "my:Sampler", "options": {"anything": 3}},
    },
    {"space": {"preprocessor": ["none", None, "my:step"]}},
]
REFUSED = [
    {"limts": {}},
    {"objective": {"metric": "valid-logloss"}},
    {"constraints": {"seconds": 5}},
    {"limits": {"max_trials": 0}},
    {"limits": {"retry_on": "lost"}},
    {"checkpoints": {"per_trial": 0}},
    {"checkpoints": {"per_trial": 2.5}},
    {"checkpoints": {"max_disk": "10GiB"}},
    {"search": {"options": {"popsze": 3}}},
    {"scheduler": {"max_t": 9}},
    {"data": {"train": "d.csv", "valid": 1.5}},
    {"data": {"train": {"uniform": [0, 1]}, "valid": 0.5, "drop": "a"}},
    {"space": {"params": {"eta": "fast"}}},
    {"trainer": "torch_tabular", "space": {"params": {"widht": 8}}},
    {"space": {"preprocessor": [{"SimpleImputer": {"strategy": "median"}}]}},
    {"space": {"scaling": {"num_workers": {"grid": []}}}},
    {"space": {"scaling": {"num_workers": {"elastic": [1]}}}},
    {"space": {"scaling": {"num_workers": {"grid": [1], "when": 3}}}},
    {"space": {"scaling": {"num_workers": {"when": {"params.a": 1}}}}},
    {"search": {"options": {"population_size": 3}}},
    {"space": {"preprocessor": ["StandardScalr"]}},
    {"limits": {"max_trials": "many"}},
    {"data": {"train": "d.csv", "valid": 0.5, "drop_missing_label": "yes"}},
]


@pytest.mark.parametrize("changes", TAKEN, ids=map(str, range(len(TAKEN))))
def test_what_is_right_is_taken(valid: Any, changes: Any) -> None:
    assert valid(GOOD | changes)


@pytest.mark.parametrize("changes", REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_is_wrong_is_refused(valid: Any, changes: Any) -> None:
    assert not valid(GOOD | changes)


def test_every_key_and_every_domain_is_in_it() -> None:
    rules = schema()
    assert set(rules["properties"]) == set(TOP)
    assert set(rules["$defs"]["domain"]["properties"]) == {*DOMAINS, "when"}
    assert json.loads(json.dumps(rules)) == rules


def test_it_is_light() -> None:
    code = (
        "import sys; from sweeps.space import schema; schema()\n"
        "assert not {'ray', 'optuna', 'mlflow', 'numpy', 'pandas', 'jsonschema'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert done.returncode == 0, done.stderr


def test_data_may_be_left_out_with_a_loop_of_ones_own_alone(valid: Any) -> None:
    without = {key: value for key, value in GOOD.items() if key != "data"}
    assert valid(without | {"trainer": {"loop": "my:train"}}) and not valid(without)
