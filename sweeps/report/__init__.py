"""The report of a sweep: its content, its figures, and the process that plots them."""

from sweeps.report.content import write
from sweeps.report.figures import Drawing

__all__ = ["Drawing", "write"]
