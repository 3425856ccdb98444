"""Verbs that show sweeps: `ls`, `show`, `logs` and `ui`."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.core.text.shell_text import printable
from sweeps.terminal import sweep_text, terminal_text
from sweeps.terminal.trial_table import format_trials, trials_csv

from . import options
from .group import main

if TYPE_CHECKING:
    from sweeps.stored.sweep_summary import SweepSummary
    from sweeps.study.record_reader import Record

# Number of trials that `show` prints without `--all`, the best first.
SHOWN_TRIALS = 20


@main.command("ls", short_help="List the sweeps with state, trials, best value and age.")
@options.root
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_sweeps(root: Path, as_json: bool) -> None:
    """List the sweeps of a root folder with state, trials, best value and age.

    The newest come first.
    """
    from sweeps.stored.sweep_summary import list_sweeps as summarize_all

    sweeps = summarize_all(root)
    for sweep in sweeps:
        for problem in sweep.problems:
            click.echo(printable(str(problem)), err=True)
    if as_json:
        click.echo(json.dumps([sweep.to_json() for sweep in sweeps]))
    else:
        width = terminal_text.width_of(sys.stdout)
        text = sweep_text.format_sweeps(sweeps, width) if sweeps else f"no sweeps in {root}"
        click.echo(printable(text))


@main.command()
@options.sweep
@click.option(
    "--trial",
    metavar="ID",
    help="Show one trial: its configuration, curve and error. `best` is the best trial.",
)
@click.option(
    "--all", "show_all", is_flag=True, help=f"Show every trial, not only the best {SHOWN_TRIALS}."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print all trials as CSV.")
@options.as_json
@options.stored_root
def show(sweep: str, root: Path | str, **settings: Any) -> None:
    """Show SWEEP and its trials, or one trial.

    SWEEP is a folder, a name, the beginning of a name, or `latest`. If several sweeps have the
    name, the newest is shown.
    """
    from sweeps.stored.stored_sweeps import open_copy

    if settings["as_csv"] and (settings["trial"] is not None or settings["as_json"]):
        other = "--trial" if settings["trial"] is not None else "--json"
        raise click.UsageError(f"--csv prints the table of trials, so it excludes {other}")
    with open_copy(sweep, root) as (folder, is_copy):
        _show(folder, is_copy, **settings)


def _show(
    folder: Path, is_copy: bool, trial: str | None, show_all: bool, as_csv: bool, as_json: bool
) -> None:
    """Print a sweep or one of its trials.

    Args:
        folder: The sweep's folder.
        is_copy: True if the folder is a temporary copy of a sweep in a store.
        trial: Id of the trial to print, or `best`; None for the whole sweep.
        show_all: True to print every trial, not only the best `SHOWN_TRIALS`.
        as_csv: True to print a table of all trials.
        as_json: True to print one JSON object.
    """
    from sweeps.bundle.ensemble_summary import ensembles_of
    from sweeps.stored.sweep_comparison import space_or_none, sweep_importance
    from sweeps.stored.sweep_summary import summarize
    from sweeps.study import record_reader

    summary = dataclasses.replace(summarize(folder), is_copy=is_copy)
    study = record_reader.read(folder)
    for problem in summary.problems:
        click.echo(printable(str(problem)), err=True)
    if trial is not None:
        _show_trial(summary, study, trial, as_json)
        return
    if as_csv:
        click.echo(printable(trials_csv(study, summary)), nl=False)
        return
    space = space_or_none(folder, [])
    importance = None if space is None else sweep_importance(study, space)
    ensembles = ensembles_of(folder, summary.store if is_copy else None)
    if as_json:
        details = {
            "stages": summary.stages,
            "importance": dict(importance.shares) if importance is not None else {},
            "ensembles": [ensemble.model_dump(mode="json") for ensemble in ensembles],
            "all": [recorded.to_json() for recorded in (study.trials if study else ())],
        }
        click.echo(json.dumps({**summary.to_json(), **details}))
        return
    parts = [sweep_text.format_sweep(summary, study, importance, ensembles)]
    if study is not None and study.trials:
        width = terminal_text.width_of(sys.stdout)
        most = None if show_all else SHOWN_TRIALS
        parts.append(format_trials(study, summary, width, most))
    click.echo(printable("\n\n".join(parts)))


def _show_trial(summary: SweepSummary, study: Record | None, trial: str, as_json: bool) -> None:
    """Print one trial, the place of its best checkpoint, and what it is doing if it is silent."""
    from sweeps.core.files.checkpoint_files import checkpoint_exists, checkpoint_place
    from sweeps.stored.sweep_lookup import trial_of

    recorded = trial_of(study, trial)
    if as_json:
        click.echo(json.dumps(recorded.to_json()))
        return
    place: str | None = None
    if (best := recorded.best) is not None:
        place = checkpoint_place(summary.folder, recorded.id, best.name)
        # The address of a checkpoint in the sweep's store is shown without a request to the store.
        if summary.store is None and not checkpoint_exists(place):
            place = None
    state = summary.state_of(recorded)
    click.echo(printable(sweep_text.format_trial(recorded, state, place)))
    stage = summary.stages.get(recorded.id, "")
    if stage.startswith(("silent: ", "waiting since")):
        click.echo(printable("\n" + stage.removeprefix("silent: ")))


@main.command()
@options.sweep
@options.trial
@click.option("--rank", type=int, help="Print the log of this rank only.  [default: all ranks]")
@click.option("-f", "--follow", is_flag=True, help="Keep printing while the trial runs.")
@options.root
def logs(sweep: str, trial: str, rank: int | None, follow: bool, root: Path) -> None:
    """Print the output of the workers that ran TRIAL of SWEEP."""
    from sweeps.stored.log_reader import read_logs
    from sweeps.stored.sweep_lookup import find

    for line in read_logs(find(sweep, root), trial, rank, follow):
        click.echo(printable(line, colors=True))


@main.command(short_help="Show all sweeps, live, on a page in the browser.")
@options.root
@options.host
@options.port(5050)
@options.allowed_hosts("this machine")
@options.token
@options.token_file(
    "$SWEEPS_SERVE_TOKEN, else a new token, which is printed; none on a host that other machines "
    "can reach"
)
@click.option(
    "--no-token",
    "needs_token",
    flag_value=False,
    default=True,
    help="Require no token: every account of this machine may then send commands.",
)
@click.option(
    "--sweep", metavar="NAME", help="Show this sweep first.  [default: the list of all sweeps]"
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def ui(root: Path, token: str | None, token_file: Path | None, **settings: Any) -> None:
    """Show the sweeps of a root folder, live, on a page in the browser.

    Ctrl-C ends it.
    """
    from sweeps.dashboard.dashboard_server import PageOptions, serve
    from sweeps.serving.access import token_of

    if not settings["needs_token"] and (token is not None or token_file is not None):
        raise click.UsageError("--no-token cannot be used with --token or --token-file")
    page_token = token_of(token, token_file) if settings["needs_token"] else None
    serve(root, PageOptions(token=page_token, **settings), click.echo)
