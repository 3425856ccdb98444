"""Verbs that run trials: `run`, `resume` and `rerun`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.core.errors import BundleError, Interrupted, SweepsError
from sweeps.terminal import result_text
from sweeps.terminal.live import Progress

from . import options
from .group import main

if TYPE_CHECKING:
    from sweeps.core.result import SweepResult


@main.command(short_help="Search a space and export the best trial.")
@click.argument("file", type=click.Path())
@options.label
@options.table
@options.stored_root
@options.edited_keys
@options.address("the cluster of the Ray job, else start Ray on this machine")
@options.tracking_uri("$MLFLOW_TRACKING_URI, else SQLite in --dir")
@click.option(
    "--storage",
    metavar="URL",
    help="Database of the study, postgresql://...  [default: a journal file in the sweep's folder]",
)
@options.minutes
@options.share("those that no other sweep on this machine uses")
@options.only_json
@options.quiet
def run(file: str, root: Path | str | None, as_json: bool, quiet: bool, **settings: Any) -> None:
    """Search the space in FILE, log every trial to MLflow, and export the best trial.

    FILE is a space file, or a table (CSV, TSV, JSON lines, Parquet) together with --label.
    """
    from sweeps.runs.api import run as run_sweep

    _run_with_progress(functools.partial(run_sweep, file, dir=root, **settings), as_json, quiet)


@main.command()
@options.sweep
@click.option("--add-trials", type=click.IntRange(min=1), metavar="N", help="Run N more trials.")
@options.overrides("Change a limit of the sweep, such as limits.timeout=2h.")
@options.address("the address of the original run")
@options.tracking_uri("the URI of the original run")
@click.option(
    "--storage",
    metavar="URL",
    help="URL of the study's database. Needed for a password, which sweeps does not store.",
)
@options.minutes
@options.share("the limit of the original run")
@options.trust
@options.only_json
@options.quiet
@options.stored_root
def resume(
    sweep: str,
    add_trials: int | None,
    root: Path | str,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Continue SWEEP after an interruption, a crash or a pause.

    If the sweep is paused and its process is alive, that process starts trials again, and the
    command ends. Only --dir, --json and --quiet can be used then.
    """
    from sweeps.runs.api import resume as resume_sweep
    from sweeps.stored.control import SweepControl
    from sweeps.stored.stored_sweeps import fetch_named

    control = SweepControl.of(sweep, root)
    if not any((add_trials, *settings.values())) and control.is_paused():
        options.echo(control.resume(), as_json)
        return
    _run_with_progress(
        functools.partial(
            resume_sweep, fetch_named(sweep, root), add_trials=add_trials or 0, **settings
        ),
        as_json,
        quiet,
    )


@main.command()
@options.sweep
@options.trial
@options.address("the address of the original run")
@options.share("the limit of the original run")
@options.trust
@options.as_json
@options.stored_root
def rerun(sweep: str, trial: str, as_json: bool, root: Path | str, **settings: Any) -> None:
    """Run TRIAL of SWEEP again and check that the reports are equal.

    The exit code is 1 if the new reports differ from the recorded ones. The new run itself is not
    recorded.
    """
    from sweeps.exports.rerun import rerun as rerun_trial
    from sweeps.stored.stored_sweeps import fetch_named

    comparison = rerun_trial(fetch_named(sweep, root), trial, **settings)
    options.echo(comparison, as_json)
    sys.exit(0 if comparison.equal else 1)


def _run_with_progress(run_sweep: Callable[..., SweepResult], as_json: bool, quiet: bool) -> None:
    """Run a sweep, show its progress on standard error, and print its result."""
    progress = Progress(silent=quiet or as_json)
    try:
        result = run_sweep(on_progress=progress)
    except SweepsError as e:
        # After a BundleError, the search has succeeded. Only the export has failed.
        if e.result is not None and (as_json or isinstance(e, BundleError)):
            progress.close()
            text = functools.partial(result_text.format_result, unexported=True)
            options.echo(e.result, as_json, lambda result: text(result) + "\n")
        raise
    finally:
        progress.close()
    options.echo(result, as_json, result_text.format_result)
    if result.reason == "interrupted":
        sys.exit(Interrupted.exit_code)
