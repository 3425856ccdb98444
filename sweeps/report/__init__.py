"""The report of a sweep: its text, its figures, and the process that draws the figures."""

from sweeps.report.content import write
from sweeps.report.figures import Drawing

__all__ = ["Drawing", "write"]
