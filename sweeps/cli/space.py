"""Verbs that check or explain a space file and start nothing: `validate`, `plan` and `schema`."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.core.text.shell_text import printable
from sweeps.terminal import terminal_text

from . import options
from .group import main

if TYPE_CHECKING:
    from sweeps.data.summary.early_summary import SourceSummary
    from sweeps.search.earlier_trials import EarlierSweep
    from sweeps.space import Space


@main.command(short_help="Check a space file without running user code.")
@click.argument("file", type=options.PATH)
@options.edited_keys
def validate(file: Path, overrides: tuple[str, ...]) -> None:
    """Check the space file FILE without running user code; print each problem with its line."""
    from sweeps.search.configurations import most_trials
    from sweeps.space import load

    space = load(file, tuple(overrides))
    _print_notes(space)
    counts = {
        "dimension": len(space.dimensions),
        "cell": len(space.cells),
        "trial": most_trials(space),
    }
    only_seeds_differ = not space.dimensions and space.limits.max_trials > 1
    note = "; the trials differ only in their seeds" if only_seeds_differ else ""
    numbers = ", ".join(f"{n} {noun}{'s' * (n != 1)}" for noun, n in counts.items())
    click.echo(f"{file}: valid; {numbers}{note}")


@main.command(short_help="Print the JSON Schema of space files, for editors.")
def schema() -> None:
    """Print the JSON Schema of space files, so that an editor can complete and check keys."""
    from sweeps.space.schema.json_schema import schema as space_file_schema

    click.echo(json.dumps(space_file_schema(), indent=1, ensure_ascii=False))


@main.command(short_help="Show the trials, shapes, fits and steps of a sweep.")
@click.argument("file", type=click.Path())
@options.label
@options.table
@options.edited_keys
@click.option(
    "--resources",
    metavar="CPU=8,GPU=2",
    help="Resources of the machine to plan for.  [default: this machine's]",
)
@click.option(
    "--data",
    "with_data",
    is_flag=True,
    help="Also read the data: show its columns, its label, and warnings about it.",
)
@click.option(
    "--call-loaders",
    is_flag=True,
    help="With --data: also call loaders `module:function`, which runs their code.",
)
@options.as_json
@options.root
def plan(
    file: str,
    label: str | None,
    overrides: tuple[str, ...],
    resources: str | None,
    with_data: bool,
    call_loaders: bool,
    as_json: bool,
    root: Path,
    **table_options: Any,
) -> None:
    """Show the trials, workers, fits, steps and disk space that the sweep in FILE needs.

    Nothing is started.

    FILE is a space file, or a table together with --label.
    """
    from sweeps.core.host import host_resources
    from sweeps.data.checks.preflight import MAX_BYTES, check_data, check_root
    from sweeps.plan import plan as plan_space
    from sweeps.plan import render
    from sweeps.scaffold.table_space import request_of, table_space
    from sweeps.space import load

    if call_loaders and not with_data:
        raise click.UsageError("--call-loaders needs --data, which reads the data")
    check_root(root)
    available = (
        host_resources.detect() if resources is None else host_resources.parse_resources(resources)
    )
    memory = host_resources.memory() if resources is None else None
    request = request_of(file, label, **table_options)
    space = load(file if request is None else table_space(file, request)[0], tuple(overrides))
    _print_notes(space)
    planned = plan_space(space, available, memory=memory, earlier=_earlier_sweeps(space, root))
    summaries = _summaries(space, call_loaders) if with_data else None
    if as_json:
        data = {} if summaries is None else {"data": [asdict(summary) for summary in summaries]}
        click.echo(json.dumps(planned.to_json() | data))
    else:
        width = min(100, terminal_text.width_of(sys.stdout) if sys.stdout.isatty() else 80)
        click.echo(render(planned, width, "--resources" if resources else "this machine"))
        if summaries is not None:
            from sweeps.data.summary.early_summary import render as render_data

            click.echo(printable("\n" + render_data(summaries)))
    if with_data:
        check_data(space, MAX_BYTES if space.data.ingest == "stream" else math.inf)


def _print_notes(space: Space) -> None:
    """Print the notes about a space."""
    for note in space.notes:
        click.echo(f"note: {note}", err=True)


def _earlier_sweeps(space: Space, root: Path) -> tuple[EarlierSweep, ...]:
    """Read the sweeps that `search.from` names.

    Reading a study imports Optuna, so nothing is imported if there are none.
    """
    if not space.search.earlier:
        return ()
    from sweeps.runs.earlier_sweeps import read_earlier_sweeps

    return read_earlier_sweeps(space, root)


def _summaries(space: Space, call_loaders: bool) -> list[SourceSummary]:
    """Read the data of a space and return a summary of each source."""
    from sweeps.core.errors import InputError
    from sweeps.data.checks.preflight import locate_problems
    from sweeps.data.summary.early_summary import summarize_early

    try:
        return summarize_early(space, call_loaders)
    except InputError as e:
        raise locate_problems(space, e.problems) from None
