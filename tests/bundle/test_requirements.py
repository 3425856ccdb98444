"""Which of a user's modules a bundle carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.bundle.requirements import find_requirements, fingerprint, pin_versions


@pytest.mark.parametrize(
    ("files", "module", "shipped"),
    [
        (["alone.py"], "alone", "alone.py"),
        (["pack/__init__.py", "pack/model.py"], "pack.model", "pack"),
        (["spaced/model.py"], "spaced.model", "spaced"),  # a namespace: no `__init__.py`
        (["spaced/inner/model.py", "spaced/inner/__init__.py"], "spaced.inner", "spaced"),
        (["spaced/inner/model.py", "spaced/other.py"], "spaced.inner.model", "spaced"),
    ],
)
def test_a_module_is_shipped_with_the_package_that_it_is_in(
    files: Any, module: str, shipped: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import json\n")
    requirements = find_requirements([module], [tmp_path])
    assert requirements.local_modules == {shipped: tmp_path / shipped} and not requirements.packages


def test_a_step_of_rays_needs_its_data_library() -> None:
    pinned = {pin.partition("==")[0] for pin in pin_versions(["ray", "sklearn", "no_such_package"])}
    assert {"ray[data]", "scikit-learn", "mlflow"} <= pinned and not {
        "ray",
        "no_such_package",
        "torch",
        "xgboost",
    } & pinned


def test_the_fingerprint_of_code_is_that_of_the_modules_it_imports(tmp_path: Path) -> None:
    files = {
        "loop.py": "import json\ndef train(config):\n    import helper\n",
        "helper.py": "X = 1\n",
        "other.py": "Y = 1\n",
    }
    prints = []
    for place, changes in (
        ("a", {}),
        ("b", {}),
        ("c", {"other.py": "Y = 2\n"}),
        ("d", {"helper.py": "X = 2\n"}),
        ("e", {"loop.py": ""}),
    ):
        (tmp_path / place).mkdir()
        for name, text in (files | changes).items():
            (tmp_path / place / name).write_text(text)
        prints.append(fingerprint(["loop"], [tmp_path / place]))
    first, copied, untouched, imported, itself = prints
    assert first == copied == untouched and len({first, imported, itself}) == 3
    assert fingerprint(["json"]) != fingerprint(["csv"]), (
        "a loop of an installed package counts itself"
    )
    scripts = [fingerprint([], (), [tmp_path / place / "loop.py"]) for place in "abcde"]
    assert scripts[0] == scripts[1] == scripts[2] and len({scripts[0], scripts[3], scripts[4]}) == 3
