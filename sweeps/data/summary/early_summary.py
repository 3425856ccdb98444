"""Summarise the data of a space before its sweep, for `sweeps plan --data`.

No code of the user runs, and no Ray starts, unless the user asks for calls of loaders.
"""

from dataclasses import dataclass

import pyarrow as pa

from sweeps.core.text.texts import aligned
from sweeps.data.load_data import summarize_source
from sweeps.data.sources import file_rows, ingest, schema_probe
from sweeps.data.sources.data_files import Source, find_files, read_errors, sources_of
from sweeps.data.sources.sources import is_loader, read_source
from sweeps.space import DataSpec, Space

from . import summary_text
from .data_summary import SAMPLE_ROWS, DataSummary
from .summary_warnings import DataWarning, warnings


@dataclass(frozen=True)
class SourceSummary:
    """Summary of one source of a space.

    Attributes:
        source: The source of the train rows, as written in the space file.
        reason: Reason why there is no summary, in one line; "" if there is one.
        summary: The summary. None if only a sweep can read the source.
        rows_exact: False if the number of rows is an estimate.
        warnings: Warnings about the data.
    """

    source: str
    reason: str = ""
    summary: DataSummary | None = None
    rows_exact: bool = True
    warnings: tuple[DataWarning, ...] = ()


def summarize_early(space: Space, call_loaders: bool = False) -> list[SourceSummary]:
    """Return a summary for each distinct source of the train rows.

    Args:
        space: The space.
        call_loaders: True to call loaders `module:function`, which runs code of the user.

    Raises:
        InputError: A source cannot be read, or the label cannot be used.
    """
    if not space.data.is_named:
        return []
    stream = ingest.choose(space).mode == "stream"
    first_variants: dict[str, DataSpec] = {}
    for spec in space.variants:
        first_variants.setdefault(spec.source, spec)
    return [_summarize(spec, space, stream, call_loaders) for spec in first_variants.values()]


def _summarize(spec: DataSpec, space: Space, stream: bool, call_loaders: bool) -> SourceSummary:
    """Summarise the source of a data variant, or give the reason why there is no summary."""
    has_loader = any(is_loader(source.name) for source in sources_of(spec).values())
    if stream and has_loader:
        return SourceSummary(
            spec.train, "only `sweeps run` reads this source, and shows its summary"
        )
    if has_loader and not call_loaders:
        return SourceSummary(
            spec.train,
            "`sweeps plan` runs no code of yours; add --call-loaders to call this function, or "
            "see the summary that `sweeps run` shows",
        )
    reader = TableReader(stream)
    summary = summarize_source(spec, space.search.seed, reader, reader.rows if stream else None)
    return SourceSummary(
        spec.train, "", summary, rows_exact=reader.exact, warnings=warnings(summary, space)
    )


class TableReader:
    """Function that reads a source, without Ray if it is no loader.

    It reads only some rows of a stream.

    Args:
        stream: True to read only some rows of files.

    Attributes:
        rows: Number of rows of each split of a stream.
        exact: False if a number of rows is an estimate.
    """

    def __init__(self, stream: bool):
        self.stream = stream
        self.exact = True
        self.rows: dict[str, int] = {}

    def __call__(self, source: Source) -> pa.Table:
        """Read a source; see `sources.read_source`. Return only some rows of a stream."""
        key = source.place.removeprefix("data.")
        if not self.stream or source.name.startswith("sklearn:") or is_loader(source.name):
            table = read_source(source)
            self.rows[key] = table.num_rows
            return table
        files = find_files(source)
        names = schema_probe.probe_schemas(files)[0].names
        with read_errors(source.place, source.name):
            sample = file_rows.read_some(files, names, SAMPLE_ROWS)
        self.exact = self.exact and sample.exact
        self.rows[key] = sample.rows
        return sample.table


def render(summaries: list[SourceSummary]) -> str:
    """Return the summaries as text: per source one line, a table of columns, and the warnings."""
    if not summaries:
        return "data: none; the loop reads its own data"
    return "\n\n".join(_text(summary, len(summaries) > 1) for summary in summaries)


def _text(source: SourceSummary, named: bool) -> str:
    """Return one summary as text; `named` is True if the text begins with the source's name."""
    head = f"data ({source.source})" if named else "data"
    if source.summary is None:
        return f"{head}: {source.reason}"
    about = "" if source.rows_exact else "about "
    blocks = [
        [f"{head}: {about}{summary_text.one_line(source.summary)}"],
        aligned(
            [summary_text.HEAD, *summary_text.table_rows(source.summary)],
            right=summary_text.RIGHT_ALIGNED,
        ),
        summary_text.remarks(source.summary),
        [f"warning: {warning.text}" for warning in source.warnings],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)
