"""The text of a sweep's report, as Markdown for MLflow and the terminal.

`html_page` adds the figures.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.bundle.ensemble_summary import EnsembleSummary, ensembles_of
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.disk import DISK_ERRORS
from sweeps.core.files.result_file import read_result
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.result import SweepResult
from sweeps.space import Space
from sweeps.study.record_reader import Record, read

from . import html_page, plots
from .plot_data import plot_data
from .report_sections import format_appendix, format_results

if TYPE_CHECKING:
    from sweeps.data.summary.data_summary import DataSummary

log = logging.getLogger(__name__)

# The largest number of slices, figures that show the objective by one dimension.
MAX_SLICES = 6


@dataclass(frozen=True)
class SweepReport:
    """The report in two formats.

    Attributes:
        markdown: The text of the report, as Markdown.
        html: The text and the figures, as one self-contained HTML page.
    """

    markdown: str
    html: str


def report(
    record: Record,
    space: Space,
    result: SweepResult,
    summary: DataSummary | None = None,
    ensembles: Sequence[EnsembleSummary] = (),
) -> SweepReport:
    """Return the report of a sweep.

    Args:
        record: The content of the study, with all trials.
        space: The search space.
        result: The sweep's result. Unlike the study, the result has the best trial's test score and
            the path of the bundle.
        summary: Summary of the data; None if there is none.
        ensembles: The ensembles that the sweep has exported.
    """
    data = plot_data(record, space, result=result)
    results = format_results(record, space, result, data, ensembles)
    appendix = format_appendix(space, result, summary)
    figures = plots.all_figures(data, MAX_SLICES)
    page = html_page.to_html(result.sweep, results, figures, appendix)
    return SweepReport(f"{results}\n\n{appendix}\n", page)


def write(folder: Path, space: Space, result: SweepResult) -> SweepReport | None:
    """Write `report.md` and `report.html` into a sweep's folder.

    An error is logged, and the sweep continues. Only an error of the disk is raised, because
    nothing else could be written to this disk either.

    Args:
        folder: The sweep's folder.
        space: The search space.
        result: The sweep's result.

    Returns:
        The report; None if there are no trials, or if the report could not be written.

    Raises:
        OSError: The disk is full, broken or read-only.
    """
    from sweeps.data.prepared_store import load_summary

    try:
        recorded = read(folder)
        if recorded is None or not recorded.trials:
            return None
        texts = report(recorded, space, result, load_summary(folder), ensembles_of(folder))
        write_text(SweepFolder(folder).report("md"), texts.markdown)
        write_text(SweepFolder(folder).report("html"), texts.html)
        return texts
    except Exception as e:
        if isinstance(e, OSError) and e.errno in DISK_ERRORS:
            raise
        log.exception("the sweep's report could not be written")
        return None


def refresh(folder: Path, space: Space) -> list[Path]:
    """Write the report of an ended sweep once more, so that it mentions new exports; see `write`.

    Returns:
        The files of the report. Empty if the sweep has no result yet, or if the report could not be
        written.
    """
    result = read_result(folder)
    if result is None:
        return []
    # If the disk is full, the export is complete anyway. Only the report does not mention it.
    with contextlib.suppress(OSError):
        if write(folder, space, result) is not None:
            return [SweepFolder(folder).report("md"), SweepFolder(folder).report("html")]
    return []
