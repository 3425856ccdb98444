"""Load the data variants of a sweep.

A data variant is the `data` section with one choice for each of the tuned keys. Each source is read
once. The data of a trial is a selection of rows and columns of one source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError
from sweeps.core.label_columns import label_columns
from sweeps.data.label_checks import check_dropped, check_same_task, split_columns
from sweeps.data.load import Splits, fold_of, load_splits, subsample
from sweeps.data.tables import copy_table
from sweeps.data.weights import check_class_weight
from sweeps.space.section_models import variant_of

if TYPE_CHECKING:
    from sweeps.space import DataSpec


def variant_name(data: Mapping[str, Any]) -> str:
    """Return the part of file names that identifies a variant.

    It has 16 hex digits, or is "" if nothing is tuned.
    """
    return (
        hashlib.sha256(json.dumps(data, sort_keys=True, default=list).encode()).hexdigest()[:16]
        if data
        else ""
    )


class DataVariants:
    """All data variants of a sweep, in memory.

    Args:
        spec: see `sweeps.space.Space.data`.
        variants: see `sweeps.space.Space.variants`.
        seed: seed for splitting the rows, and for sampling a share of the rows.
        tuned: names of the keys of the `data` section that are tuned.

    Attributes:
        sources: the splits of each distinct source, before other tuned keys than `train` are
            applied, by `DataSpec.source`.
        fingerprint: hash of all variants.

    Raises:
        InputError: see `load_splits`. Also raised if a column in a tuned `drop` does not exist, or
            the sources differ in task or classes.
    """

    def __init__(
        self, spec: DataSpec, variants: Sequence[DataSpec], seed: int, tuned: Sequence[str] = ()
    ):
        self.spec, self.seed = spec, seed
        untuned = {"drop": (), "rows": 1.0, "weight": None, "class_weight": None}
        whole: dict[str, Any] = {key: value for key, value in untuned.items() if key in tuned}
        distinct = list({variant.source: variant for variant in reversed(variants)}.values())[::-1]
        self.sources = {
            variant.source: load_splits(replace(variant, **whole), seed) for variant in distinct
        }
        dropped = (
            () if "drop" in tuned else spec.drop
        )  # these columns exist, or loading would have failed
        problems = [
            p
            for variant in variants
            for p in check_dropped(variant, [*self._columns(variant), *dropped])
        ]
        problems += [
            p
            for variant in variants
            for p in check_class_weight(variant, self.sources[variant.source].task)
        ]
        problems += check_same_task(
            [
                (variant.train, s.task, s.classes)
                for variant, s in zip(distinct, self.sources.values(), strict=True)
            ]
        )
        if problems:
            raise InputError(dict.fromkeys(problems))
        fingerprints = [self._fingerprint(variant) for variant in variants]
        self.fingerprint = (
            fingerprints[0]
            if len(fingerprints) == 1
            else hashlib.sha256(json.dumps(fingerprints).encode()).hexdigest()
        )

    def copy_rows(self) -> None:
        """Copy all rows to new memory.

        Rows that Ray has read may be views of its object store, and are lost when Ray ends.
        """
        for key, whole in self.sources.items():
            parts = {"train": whole.train, "valid": whole.valid, "test": whole.test}
            self.sources[key] = replace(
                whole,
                **{name: copy_table(part) for name, part in parts.items() if part is not None},
            )

    def _columns(self, spec: DataSpec) -> list[str]:
        """Return all columns of a source, including columns that are not features."""
        whole = self.sources[spec.source]
        return [*whole.features, *split_columns(spec), *label_columns(whole.label)]

    def source_index(self, data: Mapping[str, Any]) -> str:
        """Return the index of a variant's source in `sources`, as text.

        The text for the first source is "0".
        """
        return str(list(self.sources).index(variant_of(self.spec, data).source))

    def fingerprint_of(self, data: Mapping[str, Any]) -> str:
        """Return the fingerprint of a variant. Equal variants have equal fingerprints.

        No table is created for this.
        """
        return self._fingerprint(variant_of(self.spec, data))

    def _fingerprint(self, spec: DataSpec) -> str:
        whole = self.sources[spec.source].fingerprint
        if not self._differs_from_source(spec):
            return whole
        weights = [spec.weight, spec.class_weight] if spec.weighted else []
        return hashlib.sha256(
            json.dumps([whole, sorted(set(spec.drop)), spec.rows, self.seed, *weights]).encode()
        ).hexdigest()

    def _differs_from_source(self, spec: DataSpec) -> bool:
        """Return whether a variant differs from its entry in `sources`.

        A variant differs if it has fewer columns or train rows, or other weights.
        """
        if (spec.weight, spec.class_weight) != (self.spec.weight, self.spec.class_weight):
            return True
        return bool(set(spec.drop) - set(self.spec.drop)) or spec.rows != self.spec.rows

    def folds(self, data: Mapping[str, Any]) -> Iterator[Splits]:
        """Yield the splits of each fold of a cross-validation for a trial.

        Each fold has its own copy of the rows.

        Args:
            data: the trial's values of the tuned keys of `data`.
        """
        whole, share = self.splits(data), variant_of(self.spec, data).rows
        return (fold_of(whole, number, share, self.seed) for number in range(len(whole.folds)))

    def splits(self, data: Mapping[str, Any]) -> Splits:
        """Return the splits for a trial, with the trial's weights and share of train rows.

        The columns that the trial drops are left out.

        Args:
            data: the trial's values of the tuned keys of `data`.
        """
        spec = variant_of(self.spec, data)
        whole = self.sources[spec.source]
        if not self._differs_from_source(spec):
            return whole
        dropped = sorted(set(spec.drop) & set(whole.features))
        train, valid = whole.train.drop_columns(dropped), whole.valid.drop_columns(dropped)
        fewer = (
            spec.rows != self.spec.rows and not whole.folds
        )  # `fold_of` samples the rows of each fold
        return replace(
            whole,
            train=subsample(train, whole.label, whole.classes, spec.rows, self.seed)
            if fewer
            else train,
            valid=valid,
            test=None if whole.test is None else whole.test.drop_columns(dropped),
            features=tuple(name for name in whole.features if name not in dropped),
            fingerprint=self._fingerprint(spec),
            weight=spec.weight,
            class_weight=spec.class_weight,
        )
