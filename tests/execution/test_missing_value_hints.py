"""A loop that fails of missing values gets a line that names the columns and the step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sweeps.execution.worker.error_hints import missing_values_hint
from sweeps.space import Step

NAN = ValueError("Input X contains NaN.\nLogisticRegression does not accept missing values")
CLEAN = pd.DataFrame({"age": [1.0, 2.0], "plan": [0.0, 1.0]})
HOLES = pd.DataFrame({"age": [1.0, 2.0], "plan": [0.0, None]})
ENCODED = (Step("SimpleImputer"), Step("OrdinalEncoder"))


def shard(frame: pd.DataFrame) -> SimpleNamespace:
    return SimpleNamespace(materialize=lambda: SimpleNamespace(to_pandas=lambda: frame))


def test_an_unseen_category_is_named_with_the_encoder_that_takes_it() -> None:
    said = missing_values_hint(NAN, {"train": shard(CLEAN), "valid": shard(HOLES)}, ENCODED)
    assert said is not None and "\n" not in said and said.startswith("space.preprocessor: ")
    assert (
        "`plan` in valid" in said
        and "`age`" not in said
        and "unknown_value" in said
        and "`OrdinalEncoder`" in said
    )


@pytest.mark.parametrize("steps", [(), (Step("StandardScaler"),)])
def test_other_missing_values_are_named_with_the_imputer(steps: Any) -> None:
    said = missing_values_hint(NAN, {"train": shard(HOLES)}, steps)
    assert said is not None and "`plan` in train" in said and "`SimpleImputer`" in said


def test_other_errors_are_left_as_they_are() -> None:
    assert (
        missing_values_hint(ValueError("no such solver"), {"train": shard(HOLES)}, ENCODED) is None
    )
    assert missing_values_hint(ValueError("a banana"), {"train": shard(HOLES)}, ENCODED) is None
    assert missing_values_hint(NAN, {"train": shard(CLEAN)}, ENCODED) is None
    assert missing_values_hint(NAN, {"train": SimpleNamespace()}, ENCODED) is None
