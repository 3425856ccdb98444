"""The table of built-in steps."""

from __future__ import annotations

from sweeps.space.model.step_names import (
    BUILTIN_STEPS,
    STEP_DESCRIPTIONS,
    Step,
    required_parameters,
)
from sweeps.space.schema.parameter_schema import fragment_problem


def test_every_parameter_is_described() -> None:
    assert set(BUILTIN_STEPS) == set(STEP_DESCRIPTIONS)
    for parameters in BUILTIN_STEPS.values():
        for fragment in parameters.values():
            without_examples = {key: value for key, value in fragment.items() if key != "examples"}
            assert fragment_problem(without_examples) is None and fragment["description"]
    assert required_parameters("UniformKBinsDiscretizer") == ["bins"]


def test_a_step_in_words() -> None:
    step = Step("sklearn.preprocessing:PowerTransformer", ("a*", "b"), {"standardize": False})
    assert step.short == "PowerTransformer"
    assert list(step.arguments()) == ["columns", "standardize"]
