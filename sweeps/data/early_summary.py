"""Summarise the data of a space before its sweep, for `sweeps plan --data`.

No code of the user runs, and no Ray starts, unless the user asks for calls of loaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sweeps.core.texts import aligned
from sweeps.data import ingest, schema_probe, summary_text
from sweeps.data.files import find_files, first_line, raise_problem
from sweeps.data.load import summarize_source
from sweeps.data.sources import is_loader, read_source
from sweeps.data.summary import SAMPLE_ROWS, DataSummary
from sweeps.data.summary_warnings import DataWarning, warnings
from sweeps.space.section_models import READ_DEFAULTS, ReadKeys

if TYPE_CHECKING:
    from sweeps.space import DataSpec, Space


@dataclass(frozen=True)
class SourceSummary:
    """Summary of one source of a space.

    Attributes:
        source: the source of the train rows, as written in the space file.
        summary: the summary. None if only a sweep can read the source.
        reason: why there is no summary, in one line; "" if there is one.
        warnings: warnings about the data.
        exact: False if the number of rows is an estimate.
    """

    source: str
    summary: DataSummary | None
    reason: str = ""
    warnings: tuple[DataWarning, ...] = ()
    exact: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        found = [{"key": warning.key, "text": warning.text} for warning in self.warnings]
        summary = None if self.summary is None else self.summary.to_json()
        return {
            "source": self.source,
            "reason": self.reason,
            "summary": summary,
            "rows_exact": self.exact,
            "warnings": found,
        }


def summarize_early(space: Space, call_loaders: bool = False) -> list[SourceSummary]:
    """Return a summary for each distinct source of the train rows.

    Args:
        space: the space.
        call_loaders: True to call loaders `module:function`, which runs code of the user.

    Raises:
        InputError: a source cannot be read, or the label cannot be used.
    """
    stream = space.data.given and ingest.choose(space).mode == "stream"
    distinct = {spec.source: spec for spec in reversed(space.variants)} if space.data.given else {}
    return [_summarize(spec, space, stream, call_loaders) for spec in reversed(distinct.values())]


def _summarize(spec: DataSpec, space: Space, stream: bool, call_loaders: bool) -> SourceSummary:
    paths = [
        spec.train,
        *(
            str(rule.path)
            for rule in (spec.valid, spec.test)
            if rule is not None and rule.path is not None
        ),
    ]
    if stream and any(map(is_loader, paths)):
        return SourceSummary(
            spec.train, None, "only `sweeps run` reads this source, and shows its summary"
        )
    if any(map(is_loader, paths)) and not call_loaders:
        text = (
            "`sweeps plan` runs no code of yours; add --call-loaders to call this function, or "
            "see the summary that `sweeps run` shows"
        )
        return SourceSummary(spec.train, None, text)
    reader = TableReader(stream)
    summary = summarize_source(spec, space.search.seed, reader, reader.rows if stream else None)
    return SourceSummary(spec.train, summary, "", warnings(summary, space), reader.exact)


class TableReader:
    """Function that reads a source, without Ray if it is no loader.

    It reads only some rows of a stream.

    Args:
        stream: True to read only some rows of files.

    Attributes:
        rows: number of rows of each split of a stream.
        exact: False if a number of rows is an estimate.
    """

    def __init__(self, stream: bool):
        self.stream, self.exact = stream, True
        self.rows: dict[str, int] = {}

    def __call__(
        self,
        source: str,
        base: Path,
        place: str,
        args: Mapping[str, Any],
        read: ReadKeys = READ_DEFAULTS,
    ) -> pa.Table:
        """Read a source; see `sources.read_source`. Return only some rows of a stream."""
        key = place.removeprefix("data.")
        if not self.stream or source.startswith("sklearn:") or is_loader(source):
            table = read_source(source, base, place, args, read)
            self.rows[key] = table.num_rows
            return table
        files = find_files(source, base, place, read)
        names = schema_probe.probe_schemas(files)[0].names
        try:
            some = schema_probe.read_some(files, names, SAMPLE_ROWS)
        except (OSError, pa.ArrowException, ValueError) as e:
            raise_problem(place, f"`{source}` cannot be read: {first_line(e)}", e)
        self.exact = self.exact and some.exact
        self.rows[key] = some.rows
        return some.table


def render(summaries: list[SourceSummary]) -> str:
    """Return the summaries as text: per source one line, a table of columns, and the warnings."""
    if not summaries:
        return "data: none; the loop reads its own data"
    return "\n\n".join("\n".join(_lines(found, len(summaries) > 1)) for found in summaries)


def _lines(found: SourceSummary, named: bool) -> list[str]:
    head = f"data ({found.source})" if named else "data"
    if found.summary is None:
        return [f"{head}: {found.reason}"]
    about = "" if found.exact else "about "
    remarks = summary_text.remarks(found.summary)
    rows = [summary_text.HEAD, *summary_text.table_rows(found.summary)]
    lines = [
        f"{head}: {about}{summary_text.one_line(found.summary)}",
        "",
        *aligned(rows, right=(2, 3)),
    ]
    lines += ["", *remarks] if remarks else []
    return (
        [*lines, "", *(f"warning: {warning.text}" for warning in found.warnings)]
        if found.warnings
        else lines
    )
