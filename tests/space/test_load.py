"""A file in, a Space out."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.space import (
    DataSpec,
    Limits,
    Objective,
    SchedulerSpec,
    Search,
    Split,
    Step,
    TrainerSpec,
    load,
)
from sweeps.space.model.templates import Chain
from sweeps.space.parse.value_types import seconds
from tests.space.conftest import HEAD

SPACES = Path(__file__).parents[2] / "search_spaces"

FULL = """\
name: taxi-big-tip
trainer: {loop: my_mod:train_func, backend: torch, load: my_mod:load}
data:
  train: data/*.parquet
  label: tip
  valid: {column: split, value: valid}
  test: {time: when_paid, last: 0.1}
  task: binary
objective: {metric: valid-auc, goal: maximize}
search: {algorithm: random, seed: 7}
scheduler: {name: asha, max_t: 200, grace_period: 10, reduction_factor: 4}
limits: {max_trials: 64, timeout: 1h30m, max_concurrent_trials: auto, max_failures: 0}
space:
  scaling: {num_workers: 2, use_gpu: true}
  params: {eta: {loguniform: [1e-4, 1e-1]}, on: no}
"""


def top(**changes: str | None) -> str:
    """A valid file with some top-level keys set to other YAML, or left out."""
    keys = {
        "trainer": "xgboost",
        "data": "{train: d.csv, valid: 0.2, label: y}",
        "objective": "{metric: m, goal: minimize}",
    } | changes
    keys = keys if "space" in keys else keys | {"space": "{params: {}}"}
    return "".join(f"{key}: {value}\n" for key, value in keys.items() if value is not None)


def data(rest: str) -> str:
    return top(
        data="{train: d.csv, " + rest + ("}" if re.search(r"\blabel:", rest) else ", label: y}")
    )


def test_everything_as_written(write: Any) -> None:
    path = write(FULL)
    Path("my_mod.py").write_text(
        "def train_func(config): ...\ndef load(folder): ...\n"
        "raise SystemExit('validated, not run')\n"
    )
    space = load(path)
    assert space.name == "taxi-big-tip" and space.text == FULL and space.path == Path.cwd() / path
    assert space.trainer == TrainerSpec(None, "my_mod:train_func", "torch", "my_mod:load")
    assert space.data == DataSpec(
        "data/*.parquet",
        "tip",
        Split("column", column="split", value="valid"),
        Split("time", column="when_paid", fraction=0.1),
        "binary",
        Path.cwd(),
    )
    assert space.objective == Objective("valid-auc", "maximize")
    assert space.search == Search("random", 7)
    assert space.scheduler == SchedulerSpec(
        "asha",
        {
            "max_t": 200,
            "grace_period": 10,
            "reduction_factor": 4,
            "resource": "step",
            "type": "stopping",
        },
    )
    assert space.limits == Limits(64, 5400.0, None, 0)
    filled = space.fill(lambda dim: 0.01)
    assert filled == {
        "data": {},
        "params": {"eta": 0.01, "on": "no"},
        "preprocessor": (),
        "scaling": {"num_workers": 2, "use_gpu": True},
    }
    assert pickle.loads(pickle.dumps(space)) == space


def test_defaults(write: Any) -> None:
    space = load(write(HEAD + "space: {params: {}}\n"))
    assert space.name == "space"
    assert space.trainer == TrainerSpec(
        "xgboost", "sweeps.trainers.xgboost:train_func", "xgboost", "sweeps.trainers.xgboost:load"
    )
    assert space.search == Search("grid", 0)
    assert space.scheduler == SchedulerSpec("none", {"max_t": None})
    assert space.limits == Limits(1, None, None, 2)
    assert space.dimensions == () and space.cells == ({},)
    filled = space.fill(lambda dim: pytest.fail(dim.name))
    assert filled == {"data": {}, "params": {}, "preprocessor": (), "scaling": {}}


def test_empty_sections_count_as_absent(write: Any) -> None:
    text = HEAD + "search:\nscheduler:\nlimits:\nspace:\n  params:\n  scaling:\n  preprocessor:\n"
    assert load(write(text)).limits == Limits(1, None, None, 2)


@pytest.mark.parametrize(
    ("yaml", "split"),
    [
        ("0.2", Split("fraction", fraction=0.2)),
        ("valid/*.csv", Split("path", path="valid/*.csv")),
        ("s3://bucket/valid", Split("path", path="s3://bucket/valid")),
        ("sklearn:iris", Split("path", path="sklearn:iris")),
        ("{column: split, value: 3}", Split("column", column="split", value=3)),
        ("{time: t, last: 0.25}", Split("time", column="t", fraction=0.25)),
        ("0.25, group: g", Split("group", column="g", fraction=0.25)),
    ],
)
def test_split_forms(write: Any, yaml: str, split: Split) -> None:
    assert load(write(data(f"valid: {yaml}"))).data.valid == split


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (90, 90),
        ("90s", 90),
        ("30m", 1800),
        ("1h30m", 5400),
        ("2d", 172800),
        ("0.5h", 1800),
        (0.5, 0.5),
    ],
)
def test_durations(text: str | float, value: float) -> None:
    assert seconds(text) == value


def test_base_is_where_relative_paths_begin(write: Any, tmp_path: Path) -> None:
    path = write(top(trainer="{loop: elsewhere:fit}"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "elsewhere.py").write_text("def fit(config): ...\n")
    with pytest.raises(InputError, match="no module `elsewhere`"):
        load(path)
    space = load(path, base=tmp_path / "sub")
    assert space.data.base == tmp_path / "sub"


@pytest.mark.parametrize("name", ["quickstart", "digits_mlp"])
def test_the_spaces_that_ship(name: str) -> None:
    space = load(SPACES / f"{name}.yaml")
    assert space.name == name.replace("_", "-")
    assert len(space.cells) == (4 if name == "quickstart" else 1)
    assert {shape.workers for shape in space.shapes} == ({1, 2} if name == "quickstart" else {2})


def test_loading_imports_no_framework_and_is_quick() -> None:
    code = (
        "import sys, time\n"
        "start = time.process_time()\n"
        "import importlib.metadata, pydantic.dataclasses, ruamel.yaml\n"
        "needed = time.process_time()\n"
        "from sweeps.space import load\n"
        f"load({str(SPACES / 'quickstart.yaml')!r})\n"
        "ratio = (time.process_time() - needed) / (needed - start)\n"
        "heavy = 'ray torch mlflow optuna pandas numpy sklearn xgboost sweeps.trainers'.split()\n"
        "print(ratio, [m for m in heavy if m in sys.modules])\n"
    )
    best = 1e9
    for _ in range(5):  # the best of five, as others share the machine
        out = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=SPACES.parent,
        ).stdout
        ratio, _, heavy = out.strip().partition(" ")
        assert heavy == "[]"
        best = min(best, float(ratio))
        if best < 3:
            break
    assert best < 3, "loading takes much longer than the import of the packages that it needs"


PLACED = """\
trainer: {loop: json:load}
data:
  train: d.csv
  valid: {time: day, last: 0.2}
  drop: [a, b]
objective: {metric: m, goal: minimize}
space:
  scaling: {num_workers: 2}
  params:
    eta: 0.1
    layers: [{width: 3}]
  preprocessor:
    - StandardScaler: {columns: [x, y]}
"""


def test_every_key_knows_its_place(write: Any) -> None:
    space = load(write(PLACED), ("limits.max_trials=3", "space.params.eta=0.2"))
    places = {
        "trainer": "1:1",  # a mapping stands where its key does
        "trainer.loop": "1:17",  # all else where its value begins
        "data.label": "2:1",  # what is absent, where it should stand
        "data.train": "3:10",
        "data.valid": "4:3",
        "data.valid.time": "4:17",
        "data.drop.1": "5:13",
        "scaling": "8:3",
        "space.scaling": "8:3",
        "scaling.num_workers": "8:26",
        "scaling.use_gpu": "8:3",
        "space.params.layers.0.width": "11:22",
        "preprocessor.0.StandardScaler.columns.1": "13:37",
        "scheduler.max_t": "1:1",
        "space.absent": "7:1",
    }
    assert {key: space.place(key).removeprefix("space.yaml:") for key in places} == places
    assert (
        space.place("limits.max_trials") == "--set limits.max_trials=3"
        and space.place("params.eta") == "--set space.params.eta=0.2"
    )
    assert space == load(
        Path("space.yaml").absolute(), ("limits.max_trials=3", "space.params.eta=0.2")
    ), "places do not count"
    chain = space.sections["preprocessor"]
    assert isinstance(chain, Chain)
    step = chain.items[0]
    assert isinstance(step, Step)
    assert step.path == "preprocessor.0.StandardScaler" and "path" not in repr(step)


@pytest.mark.parametrize(
    "trainer, name, rule",
    [
        ("xgboost", "max_dept", "is not a parameter of xgboost; did you mean `max_depth`?"),
        ("torch_tabular", "widht", "is not a parameter of torch_tabular; did you mean `width`?"),
        ("xgboost", "my_own_thing", None),  # XGBoost may know more than we do
        ("xgboost", "lambdarank_bias_norm", None),
    ],
)
def test_a_slip_in_a_parameters_name_is_refused_where_it_stands(
    tmp_path: Path, trainer: str, name: str, rule: str | None
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        f"trainer: {trainer}\ndata: {{train: 'sklearn:wine', label: target, valid: 0.2}}\n"
        f"objective: {{metric: valid-x, goal: minimize}}\n"
        f"limits: {{max_trials: 1}}\nspace:\n  params:\n"
        f"    {name}: {{uniform: [0, 1]}}\n"
    )
    if rule is None:
        assert load(file).dimensions[0].name == f"params.{name}"
    else:
        with pytest.raises(InputError) as e:
            load(file)
        assert str(e.value) == f"{file}:7:5: params.{name}: {rule}"
