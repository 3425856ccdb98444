"""The layers of `sweeps`: imports go in one direction, and light commands stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sweeps

ROOT = Path(sweeps.__file__).parent
# A folder imports only from the folders before it.
ORDER = (
    "core",
    "space",
    "loaders",
    "data",
    "study",
    "search",
    "checkpoints",
    "tracking",
    "execution",
    "plan",
    "bundle",
    "evaluation",
    "sweep_report",
    "scaffold",
    "controller",
    "stored",
    "exports",
    "notebook",
    "runs",
    "serving",
    "dashboard",
    "terminal",
    "testing",
    "cli",
)


def folders_imported(folder: Path) -> dict[str, set[str]]:
    """Return the folders of `sweeps` that each file of a folder imports from."""
    names_of_file: dict[str, set[str]] = {}
    for file in folder.rglob("*.py"):
        names = names_of_file.setdefault(str(file.relative_to(ROOT)), set())
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "sweeps":
                names |= {alias.name for alias in node.names} & {*ORDER, "trainers"}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sweeps."):
                names.add(str(node.module).split(".")[1])
            elif isinstance(node, ast.Import):
                names |= {
                    alias.name.split(".")[1]
                    for alias in node.names
                    if alias.name.startswith("sweeps.")
                }
    return names_of_file


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_from_the_folders_before_it(folder: Any) -> None:
    allowed = {folder, *ORDER[: ORDER.index(folder)]}
    wrong = {
        file: names - allowed
        for file, names in folders_imported(ROOT / folder).items()
        if names - allowed
    }
    assert not wrong, wrong


def test_the_trainers_import_only_the_core_and_the_loop_context() -> None:
    wrong = {
        file: names - {"core", "trial", "trainers"}
        for file, names in folders_imported(ROOT / "trainers").items()
    }
    assert not any(wrong.values()), wrong


def test_the_top_level_has_only_public_names_and_folders() -> None:
    here = {path.name for path in ROOT.iterdir() if path.is_file() or any(path.glob("*.py"))}
    assert here == {"__init__.py", "__main__.py", "py.typed", "trainers", *ORDER}


def test_the_engine_knows_no_framework() -> None:
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            known = [
                n
                for n in names
                if n.split(".")[0] in ("xgboost", "lightgbm", "tensorflow")
                or n.startswith("sweeps.trainers")
            ]
            assert not known, f"{file.relative_to(ROOT)} imports {known}"


LIGHT = (
    "--help",
    "run --help",
    "validate search_spaces/quickstart.yaml",
    "plan search_spaces/quickstart.yaml",
)
HEAVY = {
    "ray",
    "torch",
    "mlflow",
    "xgboost",
    "pandas",
    "numpy",
    "sklearn",
    "optuna",
    "rich",
    "sweeps.trainers.xgboost",
}


@pytest.mark.parametrize("command", LIGHT)
def test_light_commands_load_nothing_heavy(command: Any) -> None:
    code = (
        "import sys; from sweeps.cli import main\n"
        f"try: main({command.split()!r})\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent
    )
    assert done.returncode == 0, done.stderr


def test_a_run_that_is_refused_does_not_load_optuna() -> None:
    code = (
        "import sys; from sweeps.cli import main\n"
        "try: main('run search_spaces/quickstart.yaml --set data.label=unknown'.split())\n"
        "except SystemExit as e: assert e.code == 2, e.code\n"
        "assert 'optuna' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent
    )
    assert done.returncode == 0, done.stderr


def test_the_public_names_are_there() -> None:
    for name in sweeps.__all__:
        assert getattr(sweeps, name) is not None
