"""Read Google-style docstrings."""

from sweeps.space.schema.docstrings import section, summary

__all__ = ["section", "summary"]
