from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sweeps.data import sklearn_datasets
from sweeps.plan.disk import (
    ANY_ROWS,
    SKLEARN_SIZES,
    DiskUse,
    estimate_disk,
    evaluate_formula,
    free_bytes,
    largest_values,
)
from sweeps.plan.text import format_bytes
from sweeps.space.section_models import Checkpoints

FORMULA = "1000 + (depth or 2) * (width or 10) * features * outputs"


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A user's trainer with a formula for the size of its checkpoints. Importing it fails."""
    (tmp_path / "sized.py").write_text(
        f"TRAINER = {{'checkpoint_bytes': {FORMULA!r}}}\n"
        "raise SystemExit\ndef train_func(config): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return '{loop: "sized:train_func"}'


WINE = '{train: "sklearn:wine", label: target, valid: 0.2}'  # 13 features, 3 classes


def test_the_formula_is_evaluated_with_the_largest_parameters(make, trainer):
    space = make(
        "params: {depth: {randint: [1, 4]}, width: {choice: [5, 8, auto]}}",
        trials=6,
        trainer=trainer,
        data=WINE,
    )
    estimate = estimate_disk(space, free=None)
    assert estimate == DiskUse(12, 1000 + 3 * 8 * 13 * 3, None, None)
    assert estimate.total == 12 * estimate.each and not estimate.short


def test_without_the_label_column_two_classes_are_assumed(make, trainer, tmp_path):
    (tmp_path / "sized.py").write_text(
        "TRAINER = {'checkpoint_bytes': '1000 * outputs'}\ndef train_func(config): ...\n"
    )
    estimate = estimate_disk(make("params: {a: 1}", trainer=trainer), None)
    assert (estimate.each, estimate.assumed) == (1000, "two classes at most")


def test_no_warning_if_the_number_of_rows_is_unknown(make, trainer, tmp_path):
    (tmp_path / "sized.py").write_text(
        "TRAINER = {'checkpoint_bytes': 'min(1000, rows)'}\ndef train_func(config): ...\n"
    )
    unknown = estimate_disk(make("params: {a: 1}", trainer=trainer), 1)
    assert (unknown.each, unknown.assumed, unknown.short) == (1000, ANY_ROWS, False)
    assert estimate_disk(make("params: {a: 1}", trainer=trainer, data=WINE), 1).short


def test_every_checkpoint_that_a_trial_keeps_is_counted(make, trainer):
    for per_trial, count in ((1, 2), (2, 2), (5, 5)):  # while a trial runs, it has two at least
        space = replace(
            make("params: {depth: 3}", trials=6, trainer=trainer),
            checkpoints=Checkpoints(per_trial),
        )
        assert estimate_disk(space, None).checkpoints == 6 * count


def test_the_size_is_unknown_without_a_formula_or_the_number_of_columns(make, trainer):
    assert estimate_disk(make("params: {depth: 3}", trainer=trainer), None).each is None
    assert (
        estimate_disk(
            make("preprocessor: {grid: [none, OneHotEncoder]}", trainer=trainer, data=WINE), None
        ).each
        is None
    )
    without_formula = make("params: {a: 1}", trainer='{loop: "tests.user_loops:wait_for"}')
    assert estimate_disk(without_formula, None) == DiskUse(24, None, None, None)


def test_the_size_of_a_shipped_data_set_is_known(make, trainer):
    assert (
        estimate_disk(make("params: {a: 1}", trainer=trainer, data=WINE), None).each
        == 1000 + 2 * 10 * 13 * 3
    )


def test_the_sizes_of_shipped_data_sets_match_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    assert set(SKLEARN_SIZES) == set(sklearn_datasets.NAMES)
    for name, (rows, outputs) in SKLEARN_SIZES.items():
        found = getattr(datasets, f"load_{name}")()
        classes = len(getattr(found, "target_names", ()))
        assert (len(found.data), outputs) == (rows, classes if classes > 2 else 1)


@pytest.mark.parametrize(
    "formula, value",
    [
        ("2 * (3 + 4) - 1", 13),
        ("2 ** (deep or 6)", 64),
        ("min(2 ** 60, rows)", 2**60),
        ("max(1, 2, three) / 2", 1),
        ("1e3", 1000),
        ("unknown", None),
        ("__import__('os').system('false')", None),
        ("2 ** 2 ** 2 ** 2 ** 2 ** 2", None),
        ("1 / none", None),
        ("(1).real", None),
        ("'a' * 3", None),
        ("1 +", None),
        ("True or", None),
    ],
)
def test_a_formula_allows_only_arithmetic(formula, value):
    assert evaluate_formula(formula, {"rows": math.inf, "unknown": None}) == value


def test_the_largest_values_of_nested_parameters_are_found(make):
    section = make(
        "params:\n  choice:\n    - {a: {uniform: [0, 2]}, b: true, c: text}\n"
        "    - {a: {grid: [1, 5]}, d: {randn: [0, 1]}, e: {q: 3}}"
    ).sections["params"]
    assert largest_values(section) == {"a": 5}


def test_free_space_is_that_of_the_nearest_existing_parent(tmp_path):
    assert free_bytes(tmp_path / "not" / "yet") == pytest.approx(free_bytes(tmp_path), rel=0.05)
    assert DiskUse(2, 10, None, free=19).short and not DiskUse(2, 10, None, free=20).short


@pytest.mark.parametrize(
    "number, text",
    [
        (1, "1 byte"),
        (900, "900 bytes"),
        (12_345, "12 KB"),
        (999_600, "1.0 MB"),
        (1.23e9, "1.2 GB"),
        (5e15, "5,000 TB"),
    ],
)
def test_bytes_are_formatted_with_two_or_three_digits(number, text):
    assert format_bytes(number) == text
