"""Verbs that change the folder of an earlier sweep: `gc`, `repair` and `rm`."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from sweeps.cli import options
from sweeps.cli.group import main
from sweeps.core.command_hints import printable
from sweeps.terminal import text


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
    default=None,
    metavar="K",
    help="Only the K best trials keep checkpoints.  [default: all]",
)
@click.option(
    "--max-disk",
    default=None,
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
    """Delete the checkpoints of SWEEP that are needed neither to resume the sweep nor to export the best trial."""
    from sweeps.checkpoints.garbage_collection import collect_garbage, parse_size
    from sweeps.checkpoints.retention import RetentionPolicy
    from sweeps.controller.stored_sweeps import fetched

    policy = RetentionPolicy(per_trial, top, None if max_disk is None else parse_size(max_disk))
    freed = collect_garbage(fetched(sweep, root), policy, dry_run)
    click.echo(text.format_freed(dataclasses.asdict(freed), "would free" if dry_run else "freed"))


@main.command(short_help="Rebuild a damaged study from the parts that can be read.")
@options.sweep
@options.as_json
@options.root
def repair(sweep: str, as_json: bool, root: Path) -> None:
    """Rebuild the damaged study of SWEEP from the parts that can still be read.

    The damaged files are kept.
    """
    from sweeps.controller.repair import repair as repair_sweep
    from sweeps.controller.sweep_lookup import find

    repaired = repair_sweep(find(sweep, root))
    click.echo(
        json.dumps(repaired.to_json()) if as_json else printable(text.format_repair(repaired))
    )


@main.command("rm", short_help="Delete a sweep and its MLflow runs.")
@options.sweep
@click.option("-y", "--yes", is_flag=True, help="Delete without a question.")
@click.option("--keep-runs", is_flag=True, help="Leave the MLflow runs alone.")
@click.option(
    "--tracking-uri",
    default=None,
    help="MLflow tracking URI.  [default: $MLFLOW_TRACKING_URI, else SQLite in --dir]",
)
@options.stored_root
def remove_sweep(
    sweep: str, yes: bool, keep_runs: bool, tracking_uri: str | None, root: Path | str
) -> None:
    """Delete SWEEP: its folder, its files in a store, its study in a database, and its MLflow runs.

    Before the question, the command says what it deletes. Bundles in other folders and registered
    models stay. A running sweep is refused.
    """
    from sweeps.controller.removal import prepared, remove

    with prepared(sweep, root, tracking_uri, keep_runs) as removal:
        click.echo(printable(text.format_removal(removal)), err=True)
        if not yes and not _confirmed():
            sys.exit(1)
        notes = remove(removal)
    for note in notes[len(removal.notes) :]:
        click.echo(printable(f"note: {note}"), err=True)
    click.echo(printable(f"deleted {removal.name}"), err=True)


def _confirmed() -> bool:
    """Ask whether to delete, and return the answer.

    Without an answer, such as at the end of a file, the answer is no.
    """
    try:
        answer = click.confirm("delete all of this?", err=True)
    except click.Abort:
        click.echo(err=True)
        answer = False
    if not answer:
        click.echo("nothing was deleted; --yes deletes without a question", err=True)
    return answer
