"""A list that several states of a trial share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Log(Sequence[T]):
    """A list to which nothing is added. A longer log shares the list of the shorter one.

    Adding n elements one after the other therefore takes O(n) time and memory.
    """

    __slots__ = ("_elements", "_length")

    def __init__(self, elements: Iterable[T] = ()):
        self._elements = list(elements)
        self._length = len(self._elements)

    def with_more(self, elements: Iterable[T]) -> Log[T]:
        """Return a log with these elements after the elements of this log."""
        longer: Log[T] = Log()
        # Another log may have added other elements to the shared list.
        shared = len(self._elements) == self._length
        longer._elements = self._elements if shared else self._elements[: self._length]
        longer._elements.extend(elements)
        longer._length = len(longer._elements)
        return longer

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        chosen = range(self._length)[index]
        if isinstance(chosen, int):
            return self._elements[chosen]
        return [self._elements[i] for i in chosen]

    def __iter__(self) -> Iterator[T]:
        return itertools.islice(self._elements, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
