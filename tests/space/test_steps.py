"""The table of Ray's preprocessors against the Ray that is installed."""

from __future__ import annotations

import inspect

from sweeps.space.step_names import RAY_STEPS, REQUIRED, Step


def test_the_table_is_rays() -> None:
    from ray.data import preprocessors

    names = set(preprocessors.__all__) - {"Chain", "TorchVisionPreprocessor"}
    signatures = {name: inspect.signature(getattr(preprocessors, name)).parameters for name in sorted(names)}
    assert {name: tuple(sorted(set(found) - {"columns"})) for name, found in signatures.items()} == RAY_STEPS
    needed = {
        name: tuple(p.name for p in found.values() if p.default is p.empty and p.name not in ("columns", "label_column"))
        for name, found in signatures.items()
    }
    assert {name: found for name, found in needed.items() if found} == REQUIRED


def test_a_step_in_words() -> None:
    step = Step("sklearn.preprocessing:PowerTransformer", ("a*", "b"), {"standardize": False})
    assert step.short == "PowerTransformer"
    assert list(step.arguments()) == ["columns", "standardize"]
