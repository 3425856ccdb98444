"""A `result.json` from a stranger is valid or is refused, but never raises another error."""

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.files.result_file import result_error
from sweeps.core.files.sweep_folder import RESULT

TRIAL: dict[str, Any] = {
    "trial": "0001",
    "value": 0.5,
    "test": None,
    "params": {},
    "preprocessor": "none",
    "scaling": {"num_workers": 1, "resources_per_worker": {"CPU": 1.0}},
    "values": {"loss": 0.5, "seconds": 1.0},
    "data": {"drop": "a"},
}


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        ({}, True),
        ({"data": {}}, False),
        ({"data": None}, False),
        ({"values": {"loss": 0.5}}, False),
        ({"values": None}, False),
    ],
)
def test_the_trials_of_a_front_have_the_same_keys(
    tmp_path: Path, changes: dict[str, Any], is_valid: bool
) -> None:
    second = {name: value for name, value in (TRIAL | changes).items() if value is not None}
    for front in ([TRIAL, second | {"test": None}], [second | {"test": None}, TRIAL]):
        content = {
            "sweep": "s",
            "dir": "/s",
            "trials": {"completed": 2},
            "best": None,
            "mlflow": {},
            "fits": 0,
            "seconds": 1.0,
            "front": front,
        }
        (tmp_path / RESULT).write_text(json.dumps(content))
        assert (result_error(tmp_path) is None) is is_valid, result_error(tmp_path)
