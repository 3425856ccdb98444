from __future__ import annotations

from tests.search.conftest import make_space

__all__ = ["make_space"]
