"""Load the data variants of a sweep.

A data variant is the `data` section with one choice for each of the tuned keys. Each source is read
once. The data of a trial is a selection of rows and columns of one source.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sweeps.core.errors import InputError, Problem
from sweeps.core.label_columns import label_columns
from sweeps.data.checks.label_checks import check_same_task
from sweeps.data.checks.named_columns import check_dropped, split_columns
from sweeps.data.columns.hashing import hash_of
from sweeps.data.columns.weights import check_class_weight
from sweeps.data.load_data import load_splits
from sweeps.space.sections.data_models import variant_of

from .redivide import redivide
from .split_tables import Splits, add_to_train, fold_of, subsample

if TYPE_CHECKING:
    from sweeps.data.streaming.split_source import SplitSource
    from sweeps.space import DataSpec

# A trial's values of the tuned keys of `data`
TunedData = Mapping[str, str | float | tuple[str, ...] | Mapping[str, Any] | None]


def variant_name(data: TunedData) -> str:
    """Return the part of file names that identifies a variant.

    It has 16 hex digits, or is "" if nothing is tuned.
    """
    if not data:
        return ""
    text = json.dumps(data, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


S = TypeVar("S", "Splits", "SplitSource")


class Variants(ABC, Generic[S]):
    """All data variants of a sweep.

    Args:
        spec: See `sweeps.space.Space.data`.
        variants: See `sweeps.space.Space.variants`.
        seed: Seed for splitting the rows, and for sampling a share of the rows.
        tuned: Names of the keys of the `data` section that are tuned.

    Attributes:
        sources: Data of each distinct source, by `DataSpec.source`. No tuned key other than `train`
            is applied yet.
        fingerprint: Hash of all variants.
        mark: Beginning of each fingerprint.

    Raises:
        InputError: A source cannot be read, a column in a tuned `drop` does not exist, or the
            sources differ in task or classes.
    """

    mark = ""

    def __init__(
        self, spec: DataSpec, variants: Sequence[DataSpec], seed: int, tuned: Sequence[str] = ()
    ):
        self.spec = spec
        self.seed = seed
        self.tuned = tuned
        self.sources: dict[str, S] = {}
        tasks = []
        problems: list[Problem] = []
        for variant in variants:
            if variant.source not in self.sources:
                source = self._read(variant)
                self.sources[variant.source] = source
                tasks.append((variant.train, source.task, source.classes))
            problems += check_dropped(variant, self._columns(variant))
            problems += check_class_weight(variant, self.sources[variant.source].task)
        problems += [problem for _, problem in check_same_task(tasks)]
        if problems:
            raise InputError(dict.fromkeys(problems))
        fingerprints = [self._fingerprint(variant) for variant in variants]
        self.fingerprint = fingerprints[0] if len(fingerprints) == 1 else self._digest(fingerprints)

    def source_index(self, data: TunedData) -> str:
        """Return the index of a variant's source in `sources`, as text.

        The text for the first source is "0".
        """
        return str(list(self.sources).index(variant_of(self.spec, data).source))

    def fingerprint_of(self, data: TunedData) -> str:
        """Return the fingerprint of the variant with these values of the tuned keys."""
        return self._fingerprint(variant_of(self.spec, data))

    @abstractmethod
    def _read(self, variant: DataSpec) -> S:
        """Read the source of a variant; see `sources`."""

    @abstractmethod
    def _columns(self, spec: DataSpec) -> list[str]:
        """Return all columns of a source, including columns that are not features."""

    @abstractmethod
    def _fingerprint(self, spec: DataSpec) -> str:
        """Return the fingerprint of a variant. Equal variants have equal fingerprints."""

    def _digest(self, parts: Sequence[object]) -> str:
        """Return one fingerprint for several parts, such as the fingerprints of variants."""
        return (self.mark + hash_of(parts))[:64]


class DataVariants(Variants["Splits"]):
    """All data variants of a sweep, in memory. A variant that differs from its source is made anew.

    `sweeps.data.streaming.stream_splits.StreamVariants` is the counterpart for streams.
    """

    @property
    def first(self) -> Splits:
        """The splits of the first source."""
        return next(iter(self.sources.values()))

    def splits(self, data: TunedData, added: Sequence[str] = (), division: int = 0) -> Splits:
        """Return the splits for a trial, with the trial's weights and share of train rows.

        The columns that the trial drops are left out.

        Args:
            data: The trial's values of the tuned keys of `data`.
            added: Names of splits whose rows are added to train; see `add_to_train`.
            division: See `RefitRows`.
        """
        splits = self._select(variant_of(self.spec, data), division)
        return add_to_train(splits, added) if added else splits

    def folds(self, data: TunedData, division: int = 0) -> Iterator[Splits]:
        """Yield the splits of each fold of a cross-validation for a trial.

        Each fold has its own copy of the rows.

        Args:
            data: The trial's values of the tuned keys of `data`.
            division: See `RefitRows`.
        """
        whole = self.splits(data, division=division)
        share = variant_of(self.spec, data).rows
        return (fold_of(whole, number, share, self.seed) for number in range(len(whole.folds)))

    def _read(self, variant: DataSpec) -> Splits:
        # The tuned keys are applied to the rows of each variant later.
        defaults = {"drop": (), "rows": 1.0, "weight": None, "class_weight": None}
        untuned: dict[str, Any] = {key: defaults[key] for key in defaults if key in self.tuned}
        return load_splits(replace(variant, **untuned), self.seed)

    def _columns(self, spec: DataSpec) -> list[str]:
        whole = self.sources[spec.source]
        # These columns exist, or loading would have failed
        dropped = () if "drop" in self.tuned else self.spec.drop
        return [*whole.features, *split_columns(spec), *label_columns(whole.label), *dropped]

    def _fingerprint(self, spec: DataSpec) -> str:
        fingerprint = self.sources[spec.source].fingerprint
        if not self._differs_from_source(spec):
            return fingerprint
        weights = [spec.weight, spec.class_weight] if spec.weighted else []
        return hash_of([fingerprint, sorted(set(spec.drop)), spec.rows, self.seed, *weights])

    def _differs_from_source(self, spec: DataSpec) -> bool:
        """Return whether a variant differs from its entry in `sources`.

        A variant differs if it has fewer columns or train rows, or other weights.
        """
        return (
            spec.rows != self.spec.rows
            or spec.weight != self.spec.weight
            or spec.class_weight != self.spec.class_weight
            or not set(spec.drop) <= set(self.spec.drop)
        )

    def _select(self, spec: DataSpec, division: int) -> Splits:
        """Return the splits of a variant."""
        whole = self.sources[spec.source]
        if division:
            assert spec.valid is not None
            whole = redivide(whole, spec.valid, self.seed, division)
        if not self._differs_from_source(spec):
            return whole
        dropped = sorted(set(spec.drop) & set(whole.features))
        train = whole.train.drop_columns(dropped)
        if spec.rows != self.spec.rows and not whole.folds:  # `fold_of` samples rows of each fold
            train = subsample(train, whole.label, whole.classes, spec.rows, self.seed)
        return replace(
            whole,
            train=train,
            valid=whole.valid.drop_columns(dropped),
            test=None if whole.test is None else whole.test.drop_columns(dropped),
            features=tuple(name for name in whole.features if name not in dropped),
            fingerprint=self._fingerprint(spec),
            weight=spec.weight,
            class_weight=spec.class_weight,
        )
