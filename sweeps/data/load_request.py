"""The request to read the data of a space, and the check that the data has not changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweeps.core.errors import InputError
from sweeps.space import DataSpec, Space
from sweeps.space.model.templates import tuned_data


class ReloadError(InputError):
    """Raised when a new process of the data actor cannot read the same data again."""


@dataclass(frozen=True)
class LoadRequest:
    """The data to read. A new process of the data actor reads the same data again.

    Attributes:
        spec: See `sweeps.space.Space.data`.
        seed: Seed of the sweep.
        variants: See `sweeps.space.Space.variants`.
        tuned: Names of the keys of the `data` section that are tuned.
        earlier_fingerprint: Fingerprint of the data when the sweep began. None if the sweep is new.
    """

    spec: DataSpec
    seed: int
    variants: Sequence[DataSpec]
    tuned: Sequence[str] = ()
    earlier_fingerprint: str | None = None

    @classmethod
    def of_space(cls, space: Space, earlier_fingerprint: str | None) -> LoadRequest:
        """Return the request for the data of a space."""
        return cls(
            spec=space.data,
            seed=space.search.seed,
            variants=space.variants,
            tuned=tuple(tuned_data(space.sections)),
            earlier_fingerprint=earlier_fingerprint,
        )

    def check_unchanged(self, fingerprint: str) -> None:
        """Raise an InputError if the fingerprint of the data was another when the sweep began."""
        if self.earlier_fingerprint is not None and fingerprint != self.earlier_fingerprint:
            raise InputError(
                "data.train",
                f"the data has changed since the sweep began: its fingerprint was "
                f"{self.earlier_fingerprint[:12]} and is now {fingerprint[:12]}",
            )
