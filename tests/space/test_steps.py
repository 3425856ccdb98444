"""Compare the table of Ray's preprocessors with the installed version of Ray."""

from __future__ import annotations

import inspect

from sweeps.core.parameter_schema import fragment_problem
from sweeps.space.step_names import RAY_STEPS, Step, required_parameters


def test_the_table_is_rays() -> None:
    from ray.data import preprocessors

    names = set(preprocessors.__all__) - {"Chain", "TorchVisionPreprocessor"}
    signatures = {
        name: inspect.signature(getattr(preprocessors, name)).parameters for name in sorted(names)
    }
    signatures["Categorizer"] = {}  # sweeps has one of its own
    assert {name: set(found) - {"columns"} for name, found in signatures.items()} == {
        step: set(own) for step, own in RAY_STEPS.items()
    }
    for step, parameters in signatures.items():
        needed = [
            p.name
            for p in parameters.values()
            if p.default is p.empty and p.name not in ("columns", "label_column")
        ]
        assert sorted(required_parameters(step)) == sorted(needed)
        for name, fragment in RAY_STEPS[step].items():
            without_examples = {key: value for key, value in fragment.items() if key != "examples"}
            assert fragment_problem(without_examples) is None and fragment["description"]
            if "default" in fragment and name != "label_column":
                default = parameters[name].default
                assert fragment["default"] == (
                    list(default) if isinstance(default, tuple) else default
                ), (step, name)


def test_a_step_in_words() -> None:
    step = Step("sklearn.preprocessing:PowerTransformer", ("a*", "b"), {"standardize": False})
    assert step.short == "PowerTransformer"
    assert list(step.arguments()) == ["columns", "standardize"]
