"""The JSON Schema takes what `load` takes, as far as a schema can tell, and refuses what any editor should underline."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sweeps.core import registry
from sweeps.space.domains import DOMAINS
from sweeps.space.json_schema import schema
from sweeps.space.load import TOP
from sweeps.space.yaml12 import parse, read_text
from tests.commands import REPO

jsonschema = pytest.importorskip("jsonschema")
SPACES = sorted((REPO / "search_spaces").rglob("*.yaml"))
GOOD = {"trainer": "xgboost", "data": {"train": "d.csv", "valid": 0.2, "label": "y"}, "objective": {"metric": "m", "goal": "minimize"}}


@pytest.fixture(scope="module")
def valid():
    made = schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made).is_valid


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_the_shipped_spaces_are_valid(valid, file):
    assert valid(parse(read_text(file, file.name), file.name).plain())


TAKEN = [
    {"objective": [{"metric": "a", "goal": "minimize"}, {"metric": "seconds", "goal": "minimize"}], "constraints": {"a": "<= 5"}},
    {"repeats": 3},
    {"repeats": {"count": 3, "aggregate": "median"}},
    {"limits": {"timeout": "1h", "max_concurrent_trials": "auto", "patience": 3, "target": 0.1, "max_gpu_hours": 2}},
    {"limits": {"retry_on": ["lost", "ConnectionError", "my.own.Error"]}},
    {"limits": {"retry_on": []}},
    {"limits": None, "space": None},
    {"checkpoints": {"per_trial": 1, "top": 5, "max_disk": "10GB"}},
    {"checkpoints": {"max_disk": "1.5 kb"}},
    {"checkpoints": {"per_trial": 5}},
    {"search": {"algorithm": "nsga2", "options": {"population_size": 8}, "initial_points": [{"params.eta": 0.1, "value": 3}]}},
    {"scheduler": {"name": "hyperband", "max_t": 9, "brackets": 2}},
    {"data": {"train": {"grid": ["a.csv", {"my:load": {"n": 3}}]}, "valid": {"time": "t", "last": 0.2}, "rows": {"uniform": [0.1, 1]}}},
    {"data": {"train": "a.csv", "valid": "b.csv", "drop": {"choice": [[], ["a"]], "when": {"data.rows": "> 0.5"}}}},
    {"space": {"params": {"eta": {"loguniform": [0.1, 1]}, "booster": {"choice": ["dart", None]}, "max_depth": None}}},
    {"space": {"params": {"choice": [{"eta": 0.1}, {"eta": 0.2}]}}},
    {"space": {"preprocessor": {"grid": ["StandardScaler", [{"SimpleImputer": {"strategy": {"choice": ["mean"]}}}, None]]}}},
    {"space": {"preprocessor": {"my:Clip": {"quantile": {"uniform": [0, 1]}}}}},
    {"trainer": {"loop": "my:train"}, "space": {"params": {"widht": 8}}},
    {"space": {"scaling": {"num_workers": {"grid": [1, 2], "when": {"params.a": [1, 2]}}}, "params": {"a": {"randn": None}}}},
    {"space": {"scaling": {"num_workers": {"elastic": [1, 4]}}}},
    {"space": {"scaling": {"num_workers": {"choice": [1, {"elastic": [1, 4]}]}}}},
]
REFUSED = [
    {"limts": {}},
    {"trainer": None},
    {"objective": {"metric": "m"}},
    {"objective": {"metric": "m", "goal": "min"}},
    {"constraints": {"a": 5}},
    {"repeats": 0},
    {"limits": {"max_trials": 0}},
    {"limits": {"max_failurs": 3}},
    {"limits": {"retry_on": "lost"}},
    {"limits": {"retry_on": ["5xx"]}},
    {"checkpoints": {"per_trial": 0}},
    {"checkpoints": {"per_trial": 2.5}},
    {"checkpoints": {"max_disk": 10}},
    {"checkpoints": {"max_disk": "10GiB"}},
    {"search": {"algorithm": "bayes"}},
    {"search": {"options": {"popsze": 3}}},
    {"scheduler": {"name": "asha", "max_t": 9, "brackets": 2}},
    {"scheduler": {"max_t": 9}},
    {"data": {"train": "d.csv"}},
    {"data": {"train": "d.csv", "valid": 1.5}},
    {"data": {"train": "d.csv", "valid": 0.5, "rows": 2}},
    {"data": {"train": {"uniform": [0, 1]}, "valid": 0.5, "drop": "a"}},
    {"space": {"parms": {}}},
    {"space": {"params": {"eta": "fast"}}},
    {"space": {"params": {"max_depth": 2.5}}},
    {"trainer": "torch_tabular", "space": {"params": {"widht": 8}}},
    {"space": {"preprocessor": {"StandardScalr": None}}},
    {"space": {"preprocessor": [{"SimpleImputer": {"strategy": "median"}}]}},
    {"space": {"scaling": {"workers": 2}}},
    {"space": {"scaling": {"num_workers": {"grid": []}}}},
    {"space": {"scaling": {"num_workers": {"elastic": [0, 4]}}}},
    {"space": {"scaling": {"num_workers": {"elastic": [1]}}}},
    {"space": {"scaling": {"num_workers": {"elastic": [1, 4], "when": {"params.a": 1}}}}},
    {"space": {"scaling": {"num_workers": {"grid": [1], "when": 3}}}},
]


@pytest.mark.parametrize("changes", TAKEN, ids=map(str, range(len(TAKEN))))
def test_what_is_right_is_taken(valid, changes):
    assert valid(GOOD | changes)


@pytest.mark.parametrize("changes", REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_is_wrong_is_refused(valid, changes):
    assert not valid(GOOD | changes)


def test_every_key_and_every_domain_is_in_it():
    made = schema()
    assert set(made["properties"]) == set(TOP)
    kinds = [kind for form in made["$defs"]["domain"]["anyOf"] for kind in form["required"]]
    assert sorted(kinds) == sorted(DOMAINS)
    assert json.loads(json.dumps(made)) == made


def described(fragment: dict[str, Any], path: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield the path and the description of each key in a fragment, at all depths. Rules such as `if` are not followed."""
    for key, inner in fragment.get("properties", {}).items():
        if "const" not in inner:
            yield f"{path}{key}", inner.get("description")
        yield from described(inner, f"{path}{key}.")
    for form in (*fragment.get("anyOf", ()), *([fragment["items"]] if "items" in fragment else ())):
        yield from described(form, path)


def test_every_key_has_a_description():
    made = schema()
    named = {"scheduler.name", *(f"trackers.{name}" for name in registry.names("tracker"))}  # A form names its scheduler or tracker.
    found = list(described({"properties": made["properties"]}))
    assert {path for path, text in found if not text} <= named
    assert {"space.scaling.num_workers.elastic", "data.valid.column", "search.initial_points"} <= dict(found).keys()
    assert made["$defs"]["params.torch_tabular"]["properties"]["lr"]["description"] == "Learning rate."


def test_it_is_light():
    code = (
        "import sys; from sweeps.space import schema; schema()\n"
        "assert not {'ray', 'optuna', 'mlflow', 'numpy', 'pandas', 'jsonschema'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert done.returncode == 0, done.stderr


def test_data_may_be_left_out_with_a_loop_of_ones_own_alone(valid):
    without = {key: value for key, value in GOOD.items() if key != "data"}
    assert valid(without | {"trainer": {"loop": "my:train"}}) and not valid(without)
