"""Options of a trainer: keys of the section `trainer` beside its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.core.installed_package import extras
from sweeps.space import load
from sweeps.space.parse.load_space import Recorded
from sweeps.space.sections import trainer_section

SPACE = """\
trainer: {trainer}
data: {{train: d.csv, label: y, valid: 0.2}}
objective: {{metric: valid-loss, goal: minimize}}
limits: {{max_trials: 2}}
space: {{scaling: {{num_workers: {workers}}}, params: {{lr: {{uniform: [0, 1]}}}}}}
"""
MODULE = """\
raise SystemExit("imported")
TRAINER = {
    "load": "load",
    "parameters": {"lr": {"type": "number"}},
    "options": {
        "model": {"format": "reference", "description": "a function that returns the model"},
        "epochs": {"type": "integer", "minimum": 1, "default": 3},
        "hook": {"format": "reference", "default": None},
        "engine": {"enum": ["numpy", "no_such_package"], "format": "package", "default": "numpy"},
    },
    "environment": {"ENGINE": "engine"},
    "max_workers": 2,
    "packages": [PACKAGES],
    "extra": "nothing",
}
def train_func(config): ...
def load(folder): ...
"""


def written(folder: Path, trainer: str, workers: str = "1", packages: str = "") -> Path:
    (folder / "my.py").write_text(MODULE.replace("PACKAGES", packages))
    (folder / "nets.py").write_text('raise SystemExit("imported")\ndef make(): ...\n')
    (folder / "space.yaml").write_text(SPACE.format(trainer=trainer, workers=workers))
    return folder / "space.yaml"


def problems(file: Path) -> list[str]:
    with pytest.raises(InputError) as e:
        load(file)
    return [str(problem).removeprefix(f"{file.parent}/") for problem in e.value.problems]


def test_a_mapping_with_a_name_gives_options(tmp_path: Path) -> None:
    trainer = load(written(tmp_path, '{name: my, model: "nets:make", reuse: never}')).trainer
    assert trainer.options == {"model": "nets:make", "epochs": 3, "hook": None, "engine": "numpy"}
    assert (trainer.references, trainer.packages, trainer.environment) == (
        ("nets:make",),
        ("numpy",),
        {"ENGINE": "numpy"},
    )
    assert (trainer.loop, trainer.load, trainer.backend, trainer.reuse) == (
        "my:train_func",
        "my:load",
        "none",
        "never",
    )


def test_keys_of_the_mapping_override_the_literal(tmp_path: Path) -> None:
    trainer = load(
        written(
            tmp_path, '{name: my, model: "nets:make", epochs: 5, backend: torch, load: "nets:make"}'
        )
    ).trainer
    assert (trainer.options["epochs"], trainer.backend, trainer.load) == (5, "torch", "nets:make")


def test_null_is_the_default(tmp_path: Path) -> None:
    assert (
        load(written(tmp_path, '{name: my, model: "nets:make", epochs: null}')).trainer.options[
            "epochs"
        ]
        == 3
    )


@pytest.mark.parametrize("trainer", ["my", "{name: my}"])
def test_an_option_without_a_default_is_required(tmp_path: Path, trainer: str) -> None:
    text = (
        "space.yaml:1:1: trainer.model: is required by `my`; give a function that returns the model"
    )
    assert problems(written(tmp_path, trainer)) == [text]


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        (
            '{name: my, model: "nets:mak"}',
            "space.yaml:1:28: trainer.model: `nets:mak`: `nets` has no `mak`; did you mean `make`?",
        ),
        (
            "{name: my, model: 3}",
            "space.yaml:1:28: trainer.model: must be a reference `module:attr`, got 3",
        ),
        (
            '{name: my, model: "nets:make", backend: "nets:Config"}',
            "space.yaml:1:50: trainer.backend: `nets:Config`: `nets` has no `Config`; valid: make",
        ),
        (
            '{name: my, model: "nets:make", epochs: 0}',
            "space.yaml:1:49: trainer.epochs: must be an integer of at least 1, got 0",
        ),
        (
            '{name: my, model: "nets:make", epoch: 1}',
            "space.yaml:1:41: trainer.epoch: unknown key; did you mean `epochs`?",
        ),
        (
            '{name: my, model: "nets:make", epochs: {choice: [1, 2]}}',
            (
                "space.yaml:1:50: trainer.epochs: cannot be tuned (`choice`); only values under "
                "`space:` can be tuned"
            ),
        ),
    ],
)
def test_a_wrong_option_has_its_place(tmp_path: Path, trainer: str, expected: str) -> None:
    assert problems(written(tmp_path, trainer)) == [expected]


def test_too_many_workers_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, '{name: my, model: "nets:make"}', workers="{choice: [1, 3]}")
    assert problems(file) == [
        "space.yaml:5:18: space.scaling: `my:train_func` trains on at most 2 workers, but the "
        "space has trials with 3 workers; "
        "set num_workers to 2"
    ]


def test_a_missing_package_names_the_extra(tmp_path: Path) -> None:
    file = written(
        tmp_path, '{name: my, model: "nets:make"}', packages='"no_such_package", "numpy"'
    )
    text = (
        "`my` needs no_such_package, which is not installed; run `pip install "
        "'sweeps-ray[nothing]'`"
    )
    assert problems(file) == [f"space.yaml:1:17: trainer: {text}"]


def test_an_option_names_a_package_that_must_be_installed(tmp_path: Path) -> None:
    file = written(tmp_path, '{name: my, model: "nets:make", engine: no_such_package}')
    text = "`no_such_package` is not installed; run `pip install no_such_package`"
    assert problems(file) == [f"space.yaml:1:49: trainer.engine: {text}"]


def test_an_option_names_a_package_of_an_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.space.sections.trainer_section.extras", lambda: ["no_such_package"])
    file = written(tmp_path, '{name: my, model: "nets:make", engine: no_such_package}')
    assert problems(file)[0].endswith(
        "`no_such_package` is not installed; run `pip install 'sweeps-ray[no_such_package]'`"
    )


def test_the_extra_of_tensorflow_is_named_as_the_package() -> None:
    assert {"keras", "tensorflow"} <= set(extras()), (
        "`trainer: {name: keras, framework: tensorflow}` names this extra"
    )


@pytest.mark.parametrize("base", ["tune.Trainable", "ray.tune.Trainable", "Trainable", "Parent"])
def test_a_trainable_class_is_not_a_loop(tmp_path: Path, base: str) -> None:
    file = written(tmp_path, '{loop: "classes:Mine"}')
    text = (
        "import ray.tune\nfrom ray import tune\nclass Parent(tune.Trainable): ...\n"
        f"class Mine({base}): ...\nclass Loop: ...\n"
    )
    (tmp_path / "classes.py").write_text(text)
    hint = (
        "`classes:Mine` is a subclass of ray.tune.Trainable, not a training loop; write trainer: "
        '{trainable: "classes:Mine"}'
    )
    assert problems(file) == [f"space.yaml:1:17: trainer.loop: {hint}"]
    assert load(written(tmp_path, '{loop: "classes:Loop"}')).trainer.loop == "classes:Loop"


def test_a_started_sweep_is_read_without_the_package(tmp_path: Path) -> None:
    trainer = '{name: my, model: "nets:make", engine: no_such_package}'
    file = written(tmp_path, trainer, packages='"no_such_package"')
    assert load(file, recorded=Recorded("random")).trainer.loop == "my:train_func"


def test_an_option_selects_its_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trainer_section, "selecting_options", lambda: {"model": "my", "epochs": "my"}
    )
    assert load(written(tmp_path, '{model: "nets:make"}')).trainer.loop == "my:train_func"
    assert problems(written(tmp_path, '{model: "nets:make", epochs: 3}')) == [
        (
            "space.yaml:1:1: trainer: has the keys model and epochs, but each selects another "
            "trainer; keep one of them"
        )
    ]


ESTIMATOR = "sklearn.ensemble:RandomForestClassifier"


@pytest.mark.parametrize(
    "trainer",
    [
        f'"{ESTIMATOR}"',
        f'{{estimator: "{ESTIMATOR}"}}',
        f'{{name: sklearn, estimator: "{ESTIMATOR}"}}',
    ],
)
def test_an_estimator_of_scikit_learn_is_a_trainer(tmp_path: Path, trainer: Any) -> None:
    space = load(written(tmp_path, trainer))
    assert (
        space.trainer.name == "sklearn"
        and space.trainer.loop == "sweeps.trainers.sklearn:train_func"
    )
    assert space.trainer.references == (ESTIMATOR,)
    assert space.trainer.options == {
        "estimator": ESTIMATOR,
        "steps": None,
        "batch_size": None,
    }


def test_an_estimator_of_the_user_is_a_trainer(tmp_path: Path) -> None:
    trainer = load(written(tmp_path, '{estimator: "nets:make", steps: 3}')).trainer
    assert (trainer.name, trainer.references, trainer.options["steps"]) == (
        "sklearn",
        ("nets:make",),
        3,
    )


def test_a_users_folder_named_sklearn_is_not_scikit_learn(tmp_path: Path) -> None:
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "ensemble.py").write_text("def train(config): ...\n")
    (tmp_path / "sklearn" / "__init__.py").touch()
    (text,) = problems(written(tmp_path, '"sklearn.ensemble:train"'))
    assert "`sklearn.ensemble:train` is a loop, not a trainer's name" in text


def test_an_estimator_trains_on_one_worker(tmp_path: Path) -> None:
    assert problems(written(tmp_path, f'"{ESTIMATOR}"', workers="2")) == [
        "space.yaml:5:18: space.scaling: `sklearn` trains on at most 1 worker, but the space has "
        "trials with 2 workers; "
        "set num_workers to 1"
    ]
