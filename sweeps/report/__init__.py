"""The report of a sweep: the sheet, its figures, and the process that plots them."""

from sweeps.report.figures import Drawing
from sweeps.report.sheet import write

__all__ = ["Drawing", "write"]
