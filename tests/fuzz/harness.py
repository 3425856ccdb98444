"""Code for all fuzz tests: the number of cases, mutations of bytes, and the conditions under which
a case fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sweeps.core.errors import SweepsError

HANG = 10.0  # seconds
# A run of some seconds by default; `make soak` asks for more.
EXAMPLES = int(os.environ.get("SWEEPS_FUZZ_EXAMPLES", "60"))
# The same cases in every short run, so that it is a test; the long one looks for new ones.
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="SWEEPS_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# How bytes are damaged: where, how many go, and what comes in their place.
ODD = [
    *(b"", b"\0", b"\xff\xfe", b"{", b"}", b"[", b"'", b'"', b"\n", b"\t", b": ", b"- "),
    *(b"null", b"NaN", b"-1", b"1e999", b"!!python/name:os.system "),
]
damage = st.lists(
    st.tuples(
        st.floats(0, 1), st.integers(0, 40), st.one_of(st.sampled_from(ODD), st.binary(max_size=8))
    ),
    min_size=1,
    max_size=4,
)


def damaged(data: bytes, how: list[tuple[float, int, bytes]]) -> bytes:
    """Return the bytes with some parts replaced."""
    for place, length, new in how:
        at = int(place * len(data))
        data = data[:at] + new + data[at + length :]
    return data


def held(
    folder: Path, call: Callable[[], Any], refusals: tuple[type[Exception], ...] = (SweepsError,)
) -> Any:
    """Call a function, and return its result or the expected error that it raised.

    The call must not take long, and must not create, change or remove files beside `folder`.

    Args:
        folder: The folder that the function may write to.
        call: Function that reads the input.
        refusals: Classes of expected errors.
    """
    before, start = _beside(folder), time.monotonic()
    try:
        return call()
    except refusals as e:
        assert str(e) and "Traceback" not in str(e)
        return e
    finally:
        assert time.monotonic() - start < HANG
        assert _beside(folder) == before


def _beside(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p): (p.lstat().st_mtime_ns, p.lstat().st_size)
        for p in folder.parent.iterdir()
        if p != folder
    }
