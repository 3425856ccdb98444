from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sweeps.data import sklearn_datasets
from sweeps.plan.disk import SKLEARN_SIZES, DataSize, DiskUse, estimate_disk, evaluate_formula, free_bytes, largest_values
from sweeps.plan.text import format_bytes
from sweeps.space.section_models import Checkpoints

FORMULA = "1000 + (depth or 2) * (width or 10) * features * outputs"


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A user's trainer that says how large its checkpoints are; it cannot be imported."""
    (tmp_path / "sized.py").write_text(f"CHECKPOINT_BYTES = {FORMULA!r}\nraise SystemExit\ndef train_func(config): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    return '{loop: "sized:train_func"}'


def test_the_formula_of_a_trainer_is_read_and_reckoned_at_the_largest(make, trainer):
    space = make("params: {depth: {randint: [1, 4]}, width: {choice: [5, 8, auto]}}", trials=6, trainer=trainer)
    told = estimate_disk(space, DataSize(features=7, outputs=3), free=None)
    assert told == DiskUse(12, 1000 + 3 * 8 * 7 * 3, None, None)
    assert told.total == 12 * told.each and not told.short
    assert estimate_disk(space, DataSize(features=7), None).assumed == "two classes at most"


def test_every_checkpoint_that_a_trial_keeps_is_counted(make, trainer):
    for kept, count in ((1, 2), (2, 2), (5, 5)):  # while a trial runs, it has two at least
        space = replace(make("params: {depth: 3}", trials=6, trainer=trainer), checkpoints=Checkpoints(kept))
        assert estimate_disk(space, DataSize(features=7), None).checkpoints == 6 * count


def test_what_cannot_be_known_is_not_told(make, trainer):
    assert estimate_disk(make("params: {depth: 3}", trainer=trainer), None, None).each is None
    widened = make("preprocessor: {grid: [none, OneHotEncoder]}", trainer=trainer)
    assert estimate_disk(widened, DataSize(features=7), None).each is None
    silent = make("params: {a: 1}", trainer='{loop: "tests.user_loops:wait_for"}')
    assert estimate_disk(silent, DataSize(10, 10, 10), None) == DiskUse(24, None, None, None)


def test_a_shipped_set_is_known(make, trainer):
    space = make("params: {a: 1}", trainer=trainer, data='{train: "sklearn:wine", label: target, valid: 0.2}')
    assert estimate_disk(space, None, None).each == 1000 + 2 * 10 * 13 * 3


def test_the_shipped_sets_are_as_scikit_learn_has_them():
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
def test_a_formula_is_arithmetic_and_nothing_else(formula, value):
    assert evaluate_formula(formula, {"rows": math.inf, "unknown": None}) == value


def test_numbers_are_found_wherever_parameters_are_tuned(make):
    section = make(
        "params:\n  choice:\n    - {a: {uniform: [0, 2]}, b: true, c: text}\n    - {a: {grid: [1, 5]}, d: {randn: [0, 1]}, e: {q: 3}}"
    ).sections["params"]
    assert largest_values(section) == {"a": 5}


def test_space_is_asked_for_where_the_folder_will_be(tmp_path):
    assert free_bytes(tmp_path / "not" / "yet") == pytest.approx(free_bytes(tmp_path), rel=0.05)
    assert DiskUse(2, 10, None, free=19).short and not DiskUse(2, 10, None, free=20).short


@pytest.mark.parametrize(
    "number, text", [(1, "1 byte"), (900, "900 bytes"), (12_345, "12 KB"), (999_600, "1.0 MB"), (1.23e9, "1.2 GB"), (5e15, "5,000 TB")]
)
def test_sizes_are_short(number, text):
    assert format_bytes(number) == text
