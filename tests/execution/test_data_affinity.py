"""A gang keeps earlier data within its memory limit, and always the current data."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.resources import Shape
from sweeps.execution.gangs.data_affinity import SHARE, cache_capacity, data_to_keep

uses = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 50)), min_size=1, max_size=30)


@given(uses, st.integers(0, 120))
def test_the_latest_that_fit_are_kept(used: Any, room: Any) -> None:
    sizes = dict(used)
    kept: tuple[tuple[str, int], ...] = ()
    for key, _ in used:
        before, kept = kept, data_to_keep(kept, key, sizes[key], room)
        keys = [k for k, _ in kept]
        assert keys[-1] == key and len(set(keys)) == len(keys)
        assert sum(size for _, size in kept) <= max(room, sizes[key]), (
            "bounded, but for the data at hand"
        )
        left_out = [k for k, _ in before if k not in keys]
        assert not left_out or sum(sizes[k] for k in keys) + sizes[left_out[-1]] > room, (
            "nothing is dropped without need"
        )
    assert [k for k, _ in data_to_keep(kept, key, sizes[key], room)] == [k for k, _ in kept], (
        "the same data again changes nothing"
    )


def test_a_gangs_room_is_its_share_of_the_memory() -> None:
    cluster = {"CPU": 8.0, "memory": 64e9}
    assert cache_capacity(cluster, Shape(2, (("CPU", 1.0),))) == SHARE * 64e9 * 2 / 8 / 2
    assert cache_capacity(cluster, Shape(1, (("CPU", 8.0),))) == SHARE * 64e9
    assert (
        cache_capacity(
            {"CPU": 8.0, "GPU": 2.0, "memory": 64e9}, Shape(1, (("CPU", 1.0), ("GPU", 1.0)))
        )
        == SHARE * 64e9 / 2
    )
