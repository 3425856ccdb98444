"""The report of a sweep: its text, its figures, and the process that draws the figures."""

from sweeps.sweep_report.content import write
from sweeps.sweep_report.figures import Drawing

__all__ = ["Drawing", "write"]
