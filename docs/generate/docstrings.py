"""Read Google-style docstrings."""

from sweeps.core.docstrings import section, summary

__all__ = ["section", "summary"]
