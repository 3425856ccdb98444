"""The threads of the BLAS and OpenMP libraries that this process has loaded."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


@functools.lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """Return threadpoolctl's controller of the libraries.

    Finding the libraries takes milliseconds, so they are searched again only after another import.

    Args:
        modules: Number of imported modules.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Limit the libraries to one thread, for small matrices.

    More threads would wait for each other most of the time.

    With one thread, results also do not depend on the number of cores. torch's operators use
    OpenMP, so they are limited, too.
    """
    with _controller(len(sys.modules)).limit(limits=1):
        yield
