"""Fixtures of tests of the evaluation."""

from tests.search.conftest import make_space

__all__ = ["make_space"]
