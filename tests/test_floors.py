"""The house: every module imports only from floors below its own, and the light paths stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sweeps

ROOT = Path(sweeps.__file__).parent
FLOORS = {
    "errors": 0,
    "refs": 0,
    "trust": 1,
    "deaths": 0,
    "distribution": 0,
    "json_file": 0,
    "checkpoints": 0,
    "space": 1,
    "trial": 1,
    "resources": 1,
    "provenance": 1,
    "chatter": 1,
    "folder": 2,
    "interrupt": 2,
    "result": 1,
    "data": 2,
    "metrics": 2,
    "search": 3,
    "gangs": 3,
    "cluster": 3,
    "runner": 4,
    "tracking": 4,
    "bundle": 4,
    "conductor": 4,
    "overview": 4,
    "report": 4,
    "pace": 0,
    "shell": 0,
    "leftovers": 1,
    "lock": 1,
    "snapshot": 2,
    "listing": 4,
    "plan": 4,
    "machine": 1,
    "serving": 5,
    "cleaning": 5,
    "terminal": 5,
    "winner": 5,
    "orchestrator": 5,
    "repair": 5,
    "driver": 5,
    "ending": 3,
    "telling": 4,
    "exporting": 5,
    "rerunning": 5,
    "refitting": 5,
    "sweep": 5,
    "cli": 6,
    "__main__": 7,
    "__init__": 7,
}
# Rooms of one floor that one of them may enter.
SIDEWAYS = {
    ("refs", "errors"),
    ("leftovers", "lock"),
    ("space", "trial"),
    ("space", "resources"),
    ("trial", "resources"),
    ("conductor", "tracking"),
    ("conductor", "overview"),
    ("orchestrator", "driver"),
    ("driver", "winner"),
    ("rerunning", "driver"),
    ("exporting", "refitting"),
    ("exporting", "winner"),
    ("refitting", "driver"),
    ("refitting", "rerunning"),
    ("refitting", "winner"),
}


def rooms_imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sweeps":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names if a.name in FLOORS}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("sweeps.")}
    return found


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_go_down(file):
    room = file.relative_to(ROOT).parts[0].removesuffix(".py")
    for other in rooms_imported(file) - {room}:
        down = FLOORS[other] < FLOORS[room] or (room, other) in SIDEWAYS
        assert down, f"{file.relative_to(ROOT)} (floor {FLOORS[room]}) imports {other} (floor {FLOORS[other]})"


def test_the_engine_knows_no_framework():
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            known = [n for n in names if n.split(".")[0] in ("xgboost", "lightgbm", "tensorflow") or n.startswith("sweeps.trainers")]
            assert not known, f"{file.relative_to(ROOT)} imports {known}"


LIGHT = ("--help", "run --help", "validate search_spaces/quickstart.yaml", "plan search_spaces/quickstart.yaml")
HEAVY = {"ray", "torch", "mlflow", "xgboost", "pandas", "numpy", "sklearn", "optuna", "rich", "sweeps.trainers.xgboost"}


@pytest.mark.parametrize("command", LIGHT)
def test_light_commands_load_nothing_heavy(command):
    code = (
        "import sys; from sweeps.cli import main\n"
        f"try: main({command.split()!r})\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr


def test_the_public_names_are_there():
    for name in sweeps.__all__:
        assert getattr(sweeps, name) is not None
