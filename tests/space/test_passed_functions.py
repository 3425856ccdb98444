"""Functions and classes that scripts pass are stored as references, or as code."""

from __future__ import annotations

import functools
import importlib
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps
from sweeps.bundle.requirements import find_requirements
from sweeps.core.errors import InputError
from sweeps.core.files import trust
from sweeps.space import load
from sweeps.space.python import passed_functions
from sweeps.space.python.passed_functions import (
    checked_copy,
    free_name,
    importable_name,
    save_module,
    write_module,
)
from sweeps.space.python.saved_space import recorded_space, runnable_space, save_space
from tests import user_loops

SPACE = {
    "objective": {"metric": "loss", "goal": "minimize"},
    "limits": {"max_trials": 2},
    "space": {"params": {"x": sweeps.uniform(0, 1)}},
}


def stored(folder: Path, **functions: Any) -> Any:
    """Write functions to a module, and import it."""
    module = write_module(functions, "trainer.loop", folder)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(folder))


def test_only_names_that_can_be_imported_are_used() -> None:
    def inner() -> None:
        pass

    assert importable_name(user_loops.plain, ()) == "tests.user_loops:plain"
    assert importable_name(inner, ()) is None and importable_name(lambda: 1, ()) is None
    assert importable_name(functools.partial(user_loops.plain), ()) is None
    from sklearn.svm import SVC

    assert importable_name(SVC, ()) == "sklearn.svm:SVC"


def test_a_stored_function_keeps_the_values_that_it_uses(tmp_path: Path) -> None:
    factor = 3

    def train(config: Any) -> Any:
        return config["x"] * factor

    module = stored(tmp_path, train=train, times=functools.partial(pow, 2))
    assert module.train({"x": 2}) == 6 and module.times(5) == 32
    assert '#     return config["x"] * factor' in Path(module.__file__).read_text(), (
        "readers see the source"
    )


def test_an_object_of_a_stored_class_can_be_pickled_by_name(tmp_path: Path) -> None:
    class Model:
        value = 7

    Model.__qualname__ = "Model"  # as a class of a notebook

    def train() -> Any:
        return pickle.dumps(Model())

    pickled = stored(tmp_path, train=train).train()
    code = f"import pickle; print(pickle.loads({pickled!r}).value)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
        ).stdout
        == "7\n"
    )


def test_a_bundle_gets_the_packages_and_modules_that_the_functions_use(tmp_path: Path) -> None:
    (tmp_path / "their_helpers.py").write_text("VALUE = 1\n")

    def train() -> Any:
        import their_helpers
        import xgboost.callback

        return np.zeros(their_helpers.VALUE), xgboost.callback

    module = write_module({"train": train}, "trainer.loop", tmp_path)
    needed = find_requirements([module], [tmp_path])
    assert {"numpy", "xgboost", "cloudpickle"} <= needed.packages
    assert set(needed.local_modules) == {f"{module}.py", "their_helpers.py"}


def test_a_bundle_gets_the_packages_of_compiled_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scipy.special import expit

    helpers = tmp_path / "their_package"
    helpers.mkdir()
    (helpers / "__init__.py").write_text("")
    (helpers / "models.py").write_text("import lightgbm\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    members = [expit] * 3  # the second and third are references to the first
    parse = np.random.default_rng

    def train() -> Any:
        from their_package import models

        return members, parse, models

    assert not isinstance(expit, types.FunctionType) and not isinstance(parse, types.FunctionType)
    module = write_module({"train": train}, "trainer.loop", tmp_path)
    needed = find_requirements([module], [tmp_path])
    assert {"numpy", "scipy", "lightgbm"} <= needed.packages
    assert set(needed.local_modules) == {f"{module}.py", "their_package"}
    modules = passed_functions._named_modules(
        pickle.dumps([len, expit, parse, np.zeros(2), "numpy", "sqrt"])
    )
    assert {"builtins", "scipy.special._special_ufuncs"} <= modules and "sqrt" not in modules


def test_functions_that_cannot_be_stored_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()
    with pytest.raises(
        InputError,
        match=r"^trainer.loop: the function uses a value that cannot be sent to workers: .*lock.*; "
        r"create this ",
    ):
        write_module({"train": lambda: lock}, "trainer.loop", tmp_path)
    monkeypatch.setattr(passed_functions, "MOST_BYTES", 2**20)
    scope: dict[str, Any] = {}
    exec("TABLE = bytes(2**21)\ndef train(): return TABLE", scope)
    with pytest.raises(
        InputError,
        match=r"^trainer.loop: .* have 2 MB, but at most 1 MB are allowed; the largest is `TABLE` "
        r"with 2 MB; pass ",
    ):
        write_module({"train": scope["train"]}, "trainer.loop", tmp_path)
    assert not list(tmp_path.iterdir())


def test_names_are_unique() -> None:
    assert (
        free_name(user_loops.plain, {}) == "plain"
        and free_name(user_loops.plain, {"plain": user_loops.plain}) == "plain_2"
    )
    assert free_name(lambda: 1, {}) == "function" and free_name(functools.partial(pow), {}) == "pow"


def test_another_version_of_python_is_named(tmp_path: Path) -> None:
    module = write_module({"train": lambda: 1}, "trainer.loop", tmp_path)
    file = tmp_path / f"{module}.py"
    now = "{}.{}".format(*sys.version_info)
    file.write_text(
        file.read_text()
        .replace(str(sys.version_info[:2]), "(3, 5)")
        .replace(f"Python {now}", "Python 3.5")
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (
        done.stderr.splitlines()[-1]
        == "ImportError: the function `train` was stored by Python 3.5, and only this version of "
        "Python can run it"
    )


def test_a_sweep_keeps_its_functions_and_runs_only_signed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space = load({**SPACE, "trainer": lambda config: {"loss": config["x"]}})
    assert space.notes == (
        "trainer.loop: `function` is stored in the sweep's folder; `sweeps resume` and `rerun` "
        "use this copy, even if you change your code "
        "later",
    )
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    save_space(sweep, space, 1.0)
    assert recorded_space(sweep).trainer.loop == space.trainer.loop
    again, roots = runnable_space(sweep)
    assert again.functions in roots and again.functions != sweep / "functions", (
        "nothing is imported from the sweep's folder"
    )
    (file,) = (sweep / "functions").glob("*.py")
    file.write_text(file.read_text() + "print('theirs')\n")
    with pytest.raises(trust.UntrustedFile, match="was not written with your key"):
        runnable_space(sweep)
    runnable_space(sweep, trust=True)
    assert recorded_space(sweep).trainer.loop == space.trainer.loop, (
        "to look at a sweep needs no signature"
    )


def test_a_copy_has_the_modules_only(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    write_module({"train": lambda: 1}, "trainer.loop", tmp_path / "made")
    save_module(tmp_path / "made", tmp_path / "saved")
    (tmp_path / "saved" / "__pycache__").mkdir()
    assert [path.suffix for path in checked_copy(tmp_path / "saved", False).iterdir()] == [".py"]
