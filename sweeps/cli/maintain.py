"""Verbs that change the folder of an earlier sweep: `gc` and `repair`."""

import dataclasses
from pathlib import Path

import click

from sweeps.terminal import result_text, sweep_text

from . import options
from .group import main


@main.command(short_help="Delete checkpoints that are no longer needed.")
@options.sweep
@click.option(
    "--per-trial",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of checkpoints that each trial keeps: the best one and the N - 1 latest ones.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="K",
    help="Only the K best trials keep checkpoints.  [default: all]",
)
@click.option(
    "--max-disk",
    metavar="SIZE",
    help="Size limit of all checkpoints together, such as 10GB; checkpoints of the worst trials "
    "are deleted first.  [default: no limit]",
)
@click.option(
    "--dry-run", is_flag=True, help="Print how much space would be freed, and delete nothing."
)
@options.stored_root
def gc(
    sweep: str,
    per_trial: int,
    top: int | None,
    max_disk: str | None,
    dry_run: bool,
    root: Path | str,
) -> None:
    """Delete checkpoints of SWEEP that neither a resume nor an export of the best trial needs."""
    from sweeps.checkpoints.garbage_collection import collect_garbage, parse_size
    from sweeps.space.sections.search_models import Checkpoints
    from sweeps.stored.stored_sweeps import fetch_named

    policy = Checkpoints(per_trial, top, None if max_disk is None else parse_size(max_disk))
    freed = collect_garbage(fetch_named(sweep, root), policy, dry_run)
    click.echo(
        result_text.format_freed(dataclasses.asdict(freed), "would free" if dry_run else "freed")
    )


@main.command(short_help="Rebuild a damaged study from the parts that can be read.")
@options.sweep
@options.as_json
@options.root
def repair(sweep: str, as_json: bool, root: Path) -> None:
    """Rebuild the damaged study of SWEEP from the parts that can still be read.

    The damaged files are kept.
    """
    from sweeps.stored.repair import repair as repair_sweep
    from sweeps.stored.sweep_lookup import find

    options.echo(repair_sweep(find(sweep, root)), as_json, sweep_text.format_repair)
