"""The section `trackers` is checked without importing anything of the user's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.core.plugins import plugin_registry
from sweeps.space import load
from sweeps.space.sections.tracker_section import TrackerSpec

SPACE = """\
trainer: {loop: "sweeps.testing.pytest_trackers:train_func"}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 4}
space: {params: {lr: {uniform: [0, 1]}}}
"""


def loaded(tmp_path: Path, trackers: Any = None) -> Any:
    file = tmp_path / "s.yaml"
    file.write_text(SPACE + (f"trackers: {trackers}\n" if trackers is not None else ""))
    return load(file)


def test_mlflow_is_the_default(tmp_path: Path) -> None:
    for trackers in (None, "null", "[mlflow]"):
        space = loaded(tmp_path, trackers)
        assert space.trackers == (TrackerSpec("mlflow"),) and space.has_mlflow
    assert loaded(tmp_path, "[]").trackers == () and not loaded(tmp_path, "[]").has_mlflow


def test_a_users_tracker_is_located_but_not_imported(tmp_path: Path) -> None:
    (tmp_path / "my_mod.py").write_text("raise RuntimeError('imported')\nclass Tracker: pass\n")
    space = loaded(
        tmp_path,
        '["my_mod:Tracker", {"my_mod:Tracker": {path: "https://h/x", timeout: 3}}, {jsonl: {}}]',
    )
    assert [(spec.name, spec.options) for spec in space.trackers] == [
        ("my_mod:Tracker", {}),
        ("my_mod:Tracker", {"path": "https://h/x", "timeout": 3}),
        ("jsonl", {}),
    ]
    assert "https" not in repr(space.trackers)


@pytest.mark.parametrize(
    "trackers, problem",
    [
        ("jsonl", "s.yaml:5:11: trackers: must be a list, such as [mlflow, jsonl], got jsonl"),
        (
            "[jsonn]",
            (
                "s.yaml:5:12: trackers.0: `jsonn` is neither a built-in tracker nor a reference "
                "`module:attr`; did you mean `jsonl`?"
            ),
        ),
        (
            "[wandb]",
            "trackers.0: `wandb` is neither a built-in tracker nor a reference `module:attr`; "
            "valid: "
            f"{', '.join(plugin_registry.names('tracker'))}",
        ),
        (
            "[mlflow, mlflow]",
            "s.yaml:5:20: trackers.1: `mlflow` is listed twice with the same options",
        ),
        (
            "[{jsonl: {path: x}}]",
            "s.yaml:5:13: trackers.0.jsonl: jsonl has no options; write `jsonl` alone",
        ),
        ('["no_such_mod:Tracker"]', "trackers.0: `no_such_mod:Tracker`: no module `no_such_mod`"),
        ('["json:Tracker"]', "trackers.0: `json:Tracker`: `json` has no `Tracker`"),
        ("[3]", "trackers.0: must be a name, or a mapping of one name to its options"),
        (
            '[{"json:dumps": 3}]',
            "trackers.0.json:dumps: options must be a mapping with text as keys, got 3",
        ),
        (
            "{choice: [[mlflow], []]}",
            "trackers: cannot be tuned (`choice`); only values under `space:` can be tuned",
        ),
    ],
)
def test_problems_say_what_is_valid(tmp_path: Path, trackers: str, problem: Any) -> None:
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, trackers)
    assert problem in str(refused.value), str(refused.value)


def test_validate_imports_no_heavy_module_for_the_trackers(tmp_path: Path) -> None:
    trackers = list(plugin_registry.names("tracker"))
    (tmp_path / "s.yaml").write_text(SPACE + f"trackers: {json.dumps(trackers)}\n")
    code = (
        "import sys; from sweeps.space import load; load(sys.argv[1])\n"
        "heavy = {'ray', 'torch', 'mlflow', 'optuna', 'numpy', 'pandas', 'tensorboard'} & "
        "set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
