"""The variants of a sweep's data: each source is read once, and what a trial gets of it is cut from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError
from sweeps.data.label_checks import check_dropped, check_same_task, split_columns
from sweeps.data.load import Splits, load_splits, subsample
from sweeps.space.section_models import variant_of

if TYPE_CHECKING:
    from sweeps.space import DataSpec


def variant_name(data: Mapping[str, Any]) -> str:
    """A name for a variant, for files: "" for data of which nothing is tuned, else 16 hex digits."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=list).encode()).hexdigest()[:16] if data else ""


class DataVariants:
    """All data of a sweep, in memory.

    Args:
        spec: see `sweeps.space.Space.data`.
        variants: see `sweeps.space.Space.variants`.
        seed: decides splits and parts of the rows.
        tuned: the keys of `data` that are tuned.

    Raises:
        InputError: see `load_splits`; or the sources do not agree on what the label is.
    """

    def __init__(self, spec: DataSpec, variants: Sequence[DataSpec], seed: int, tuned: Sequence[str] = ()):
        self.spec, self.seed = spec, seed
        whole: dict[str, Any] = {key: value for key, value in (("drop", ()), ("rows", 1.0)) if key in tuned}
        distinct = list({variant.source: variant for variant in reversed(variants)}.values())[::-1]
        self.sources = {variant.source: load_splits(replace(variant, **whole), seed) for variant in distinct}
        gone = () if "drop" in tuned else spec.drop  # known to be there, or loading had failed
        problems = [p for variant in variants for p in check_dropped(variant, [*self._columns(variant), *gone])]
        problems += check_same_task(
            [(variant.train, s.task, s.classes) for variant, s in zip(distinct, self.sources.values(), strict=True)]
        )
        if problems:
            raise InputError(dict.fromkeys(problems))
        prints = [self._fingerprint(variant) for variant in variants]
        self.fingerprint = prints[0] if len(prints) == 1 else hashlib.sha256(json.dumps(prints).encode()).hexdigest()

    def _columns(self, spec: DataSpec) -> list[str]:
        """The columns of a source, those too that are no features."""
        whole = self.sources[spec.source]
        return [*whole.features, *split_columns(spec), *((whole.label,) if whole.label else ())]

    def source_index(self, data: Mapping[str, Any]) -> str:
        """The number of the source of a variant, as text."""
        return str(list(self.sources).index(variant_of(self.spec, data).source))

    def fingerprint_of(self, data: Mapping[str, Any]) -> str:
        """Equal for equal variants, without making one."""
        return self._fingerprint(variant_of(self.spec, data))

    def _fingerprint(self, spec: DataSpec) -> str:
        whole = self.sources[spec.source].fingerprint
        if not self._differs_from_source(spec):
            return whole
        return hashlib.sha256(json.dumps([whole, sorted(set(spec.drop)), spec.rows, self.seed]).encode()).hexdigest()

    def _differs_from_source(self, spec: DataSpec) -> bool:
        """Whether a variant is less than its source."""
        return bool(set(spec.drop) - set(self.spec.drop)) or spec.rows != self.spec.rows

    def splits(self, data: Mapping[str, Any]) -> Splits:
        """The splits of a trial: without its dropped columns, and of the train split its part of the rows.

        Raises:
            InputError: a column that is to be dropped is not there.
        """
        spec = variant_of(self.spec, data)
        whole = self.sources[spec.source]
        if not self._differs_from_source(spec):
            return whole
        gone = sorted(set(spec.drop) & set(whole.features))
        train, valid = whole.train.drop_columns(gone), whole.valid.drop_columns(gone)
        return replace(
            whole,
            train=train if spec.rows == self.spec.rows else subsample(train, whole.label, whole.classes, spec.rows, self.seed),
            valid=valid,
            test=None if whole.test is None else whole.test.drop_columns(gone),
            features=tuple(name for name in whole.features if name not in gone),
            fingerprint=self._fingerprint(spec),
        )
