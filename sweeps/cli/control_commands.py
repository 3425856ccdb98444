"""Verbs that control a running sweep: `stop`, `pause` and `enqueue`; `resume` is in `run`."""

from pathlib import Path

import click

from . import options
from .group import main

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait this long for the process that runs the sweep.",
)


@main.command(short_help="Stop a running sweep, or one of its trials.")
@click.argument("sweep")
@click.argument("trial", required=False)
@timeout_option
@options.as_json
@options.stored_root
def stop(sweep: str, trial: str | None, timeout: float, as_json: bool, root: Path | str) -> None:
    """Stop TRIAL of SWEEP at once, or stop SWEEP as after Ctrl-C.

    A stopped trial counts as pruned. A stopped sweep keeps its finished trials and exports the best
    one; `sweeps resume` continues it. Without TRIAL, the command waits until the sweep's process
    has ended. The exit code is 1 if no process runs the sweep, if the trial has ended, or if the
    process does not answer.
    """
    from sweeps.stored.control import SweepControl

    options.echo(SweepControl.of(sweep, root, timeout).stop(trial), as_json)


@main.command(short_help="Let a running sweep start no new trials.")
@click.argument("sweep")
@timeout_option
@options.as_json
@options.stored_root
def pause(sweep: str, timeout: float, as_json: bool, root: Path | str) -> None:
    """Let SWEEP start no new trials until `sweeps resume SWEEP`. Running trials continue.

    The exit code is 1 if no process runs the sweep, if a pause would change nothing, or if the
    process does not answer.
    """
    from sweeps.stored.control import SweepControl

    options.echo(SweepControl.of(sweep, root, timeout).pause(), as_json)


@main.command(short_help="Choose the values of the next trial of a running sweep.")
@click.argument("sweep")
@click.option(
    "--params",
    required=True,
    multiple=True,
    metavar="NAME=VALUE[,NAME=VALUE]",
    help="Values of dimensions, such as eta=0.1,max_depth=4. The search chooses the other values.",
)
@timeout_option
@options.as_json
@options.stored_root
def enqueue(
    sweep: str, params: tuple[str, ...], timeout: float, as_json: bool, root: Path | str
) -> None:
    """Let the next trial of SWEEP have these values, and print the number of the trial.

    The trial counts towards `limits.max_trials`. The exit code is 1 if no process runs the sweep,
    if the sweep takes no configurations, or if the process does not answer. It is 2 if a name or a
    value is wrong.
    """
    from sweeps.space.parse.assignments import parse_assignments
    from sweeps.stored.control import SweepControl

    values = parse_assignments(params, "--params")
    options.echo(SweepControl.of(sweep, root, timeout).enqueue(values, "--params"), as_json)
