"""Verbs that show sweeps and change nothing: `ls`, `show`, `logs` and `ui`."""

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

# Number of trials that `show` prints without `--all`, the best first.
SHOWN_TRIALS = 20


@main.command("ls", short_help="List the sweeps with state, trials, best value and age.")
@options.root
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_sweeps(root: Path, as_json: bool) -> None:
    """List the sweeps of a root folder with state, trials, best value and age; the newest come first."""
    from sweeps.controller.sweep_summary import list_sweeps as summarize_all

    sweeps = summarize_all(root)
    for problem in (problem for sweep in sweeps for problem in sweep.problems):
        click.echo(printable(str(problem)), err=True)
    if as_json:
        click.echo(json.dumps([sweep.to_json() for sweep in sweeps]))
    else:
        click.echo(printable(text.format_sweeps(sweeps, text.width_of(sys.stdout))) if sweeps else f"no sweeps in {root}")


@main.command()
@click.argument("sweep")
@click.option("--trial", default=None, metavar="ID", help="Show one trial: its configuration, curve and error. `best` is the best trial.")
@click.option("--all", "show_all", is_flag=True, help=f"Show every trial, not only the best {SHOWN_TRIALS}.")
@click.option("--watch", "watched", is_flag=True, help="While the sweep runs, show its progress until the sweep ends, or until Ctrl-C.")
@options.as_json
@options.stored_root
def show(sweep: str, trial: str | None, show_all: bool, watched: bool, as_json: bool, root: Path | str) -> None:
    """Show SWEEP and its trials, or one trial.

    SWEEP is a folder, a name, the beginning of a name, or `latest`. If several sweeps have the name, the newest is shown.
    """
    from sweeps.controller.stored_sweeps import opened

    if watched:
        if as_json or trial is not None:
            raise click.UsageError("--watch shows the progress of the whole sweep, so it cannot be used with --json or --trial")
        from sweeps.controller.watch import statuses
        from sweeps.terminal.watch import watch

        watch(statuses(sweep, root), sys.stdout)
    with opened(sweep, root) as (folder, is_copy):
        _show(folder, is_copy, trial, show_all, as_json)


def _show(folder: Path, is_copy: bool, trial: str | None, show_all: bool, as_json: bool) -> None:
    from sweeps.controller.sweep_lookup import trial_of
    from sweeps.controller.sweep_summary import summarize
    from sweeps.study import record

    summary = dataclasses.replace(summarize(folder), is_copy=is_copy)
    study = record.read(folder)
    for problem in summary.problems:
        click.echo(printable(str(problem)), err=True)
    if trial is not None:
        recorded = trial_of(study, trial)
        assert study is not None
        if as_json:
            click.echo(json.dumps(recorded.to_json()))
            return
        state, folds = summary.state_of(recorded), study.objectives.cross_validated
        click.echo(printable(text.format_trial(recorded, study.metric, study.goal, state, folds)))
        if (stage := summary.stages.get(recorded.id, "")).startswith(("silent: ", "waiting since")):
            click.echo(printable("\n" + stage.removeprefix("silent: ")))
    elif as_json:
        recorded_trials = [t.to_json() for t in (study.trials if study else ())]
        click.echo(json.dumps({**summary.to_json(), "stages": summary.stages, "all": recorded_trials}))
    else:
        click.echo(printable(text.format_sweep(summary, study, text.width_of(sys.stdout), None if show_all else SHOWN_TRIALS)))


@main.command()
@click.argument("sweep")
@click.argument("trial")
@click.option("--rank", type=int, default=None, help="Print the log of this rank only.  [default: all ranks]")
@click.option("-f", "--follow", is_flag=True, help="Keep printing while the trial runs.")
@options.root
def logs(sweep: str, trial: str, rank: int | None, follow: bool, root: Path) -> None:
    """Print the output of the workers that ran TRIAL of SWEEP."""
    from sweeps.controller.log_reader import read_logs
    from sweeps.controller.sweep_lookup import find

    for line in read_logs(find(sweep, root), trial, rank, follow):
        click.echo(printable(line, colors=True))


@main.command()
@options.root
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="Port to listen on; 0 picks a free port.")
@click.option("--sweep", default=None, metavar="NAME", help="Print links to this sweep.  [default: the newest]")
@click.option("--tracking-uri", default=None, help="MLflow tracking URI.  [default: $MLFLOW_TRACKING_URI, else SQLite in --dir]")
@click.option("--open", "open_browser", is_flag=True, help="Open the sweep's trials in a browser.")
def ui(root: Path, host: str, port: int, sweep: str | None, tracking_uri: str | None, open_browser: bool) -> None:
    """Serve MLflow's UI for the sweeps of a root folder until Ctrl-C."""
    from sweeps.tracking.mlflow.ui import serve_ui

    sys.exit(serve_ui(root, host, port, open_browser, sweep, tracking_uri))
