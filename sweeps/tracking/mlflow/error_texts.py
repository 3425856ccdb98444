"""Texts of MLflow's errors."""

from __future__ import annotations

from sweeps.core.text.secrets import masked


def first_line(error: Exception) -> str:
    """Return the first line of an error's message. Later lines of a database's error have SQL."""
    return masked((str(error).splitlines() or [type(error).__name__])[0])
