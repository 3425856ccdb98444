"""The verb `export`."""

from pathlib import Path
from typing import Any

import click

from . import options
from .group import main


@main.command(short_help="Write the bundle of a trial, by default of the best trial.")
@options.sweep
@click.option("--trial", metavar="ID", help="Export this trial.  [default: the best]")
@click.option("--top", type=click.IntRange(1), metavar="K", help="Export the K best trials.")
@click.option(
    "--pareto", is_flag=True, help="Export every trial of the Pareto front, for several objectives."
)
@click.option(
    "--refit",
    is_flag=True,
    help="Train the trial again on train and valid together, up to the step of its best model.",
)
@click.option(
    "--latest", is_flag=True, help="Export the trial's latest checkpoint instead of the best one."
)
@click.option(
    "--ensemble",
    type=click.IntRange(1),
    metavar="N",
    help="Export an average of at most N models, which N rounds choose by the rows of valid.",
)
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    help="Folder to write the bundle to.  [default: SWEEP/exports/ID]",
)
@click.option(
    "--register",
    "name",
    metavar="NAME",
    help="Register the bundle in MLflow as a new version of the model NAME.",
)
@click.option(
    "--alias",
    metavar="ALIAS",
    help="With --register: move this alias to the new version if this version is better than the "
    "version that has the alias.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With --alias: move the alias even if the new version is not better.",
)
@click.option(
    "--at-least",
    type=click.FloatRange(0.5, 1),
    metavar="P",
    help="With --alias: move the alias only if the new version is better on new rows with this "
    "probability.",
)
@options.share("with --refit, the limit of the original run")
@options.trust
@options.stored_root
def export(
    sweep: str,
    root: Path | str,
    top: int | None,
    pareto: bool,
    name: str | None,
    alias: str | None,
    force: bool,
    at_least: float | None,
    **settings: Any,
) -> None:
    """Write the bundle of a trial of SWEEP, or of an ensemble.

    SWEEP is a folder, a name, the beginning of a name, or `latest`.
    """
    from sweeps.exports import bundle_registration, sweep_exports
    from sweeps.stored.stored_sweeps import fetch_named
    from sweeps.tracking.mlflow import model_registry

    if (alias is not None or force) and name is None:
        raise click.UsageError("--alias and --force need --register NAME")
    if at_least is not None and alias is None:
        raise click.UsageError("--at-least needs --alias ALIAS")
    if alias is not None and pareto:
        raise click.UsageError(
            "--alias refers to one model, but --pareto exports several models, none of which is "
            "the best; use --trial ID"
        )
    if name is not None:
        model_registry.check_names(name, alias)
    folder = fetch_named(sweep, root)
    # To register a model, an earlier export of this model can be used again.
    reuse = name is not None
    written = sweep_exports.export(folder, top=top, pareto=pareto, reuse=reuse, **settings)
    for exported in written:
        click.echo(exported.path)
        for note in exported.notes:
            click.echo(note, err=True)
        if (digest := bundle_registration.digest_of(exported.path)) is not None:
            click.echo(f"SHA-256 of the bundle's manifest: {digest}", err=True)
        if name is not None:
            lines = bundle_registration.register(
                folder, exported.path, name, alias, force, at_least
            )
            for line in lines:
                click.echo(line, err=True)
    if top is not None and len(written) < top:
        reason = "no other trial has ended with a value and still has its checkpoint"
        click.echo(f"note: --top {top}: exported only {len(written)}, because {reason}", err=True)
