"""The command line: verbs, what they print, exit codes."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

import sweeps
from sweeps import __version__
from sweeps.core import installed_package
from sweeps.core.command_hints import DEFAULT_ROOT, printable
from sweeps.core.errors import BundleError, InputError, Interrupted, Problem, SweepsError
from sweeps.terminal import text
from sweeps.terminal.live import Progress

if not hasattr(sweeps, "SweepsError"):
    sys.exit(f"sweeps: `sweeps/__init__.py` is that of another package named `sweeps`: {installed_package.WAY_OUT}")


class _Group(click.Group):
    """Prints errors, ours and those of the command line, as lines without a traceback, and exits with their code."""

    def main(self, args: Any = None, *more: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run = functools.partial(super().main, args, *more, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        try:
            sys.exit(run())
        except click.exceptions.NoArgsIsHelpError as e:
            e.show()
            sys.exit(e.exit_code)
        except click.UsageError as e:
            typed = e.ctx.command_path if e.ctx else "sweeps"
            click.echo(f"{typed}: {' '.join(e.format_message().split())}  ({typed} --help)", err=True)
            sys.exit(e.exit_code)
        except click.ClickException as e:
            e.show()
            sys.exit(e.exit_code)
        except SweepsError as e:
            click.echo(printable(str(e)), err=True)
            sys.exit(e.exit_code)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            sys.exit(Interrupted.exit_code)
        except BrokenPipeError:  # who reads has seen enough, as `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)


ROOT: dict[str, Any] = {
    "type": click.Path(path_type=Path),
    "default": Path(DEFAULT_ROOT),
    "show_default": True,
    "help": "Root of all sweeps.",
}
TRUST: dict[str, Any] = {"is_flag": True, "help": "Read pickles in the sweep's folder that your key has not signed; this runs their code."}


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="sweeps")
def main() -> None:
    """Tune preprocessors, scaling, data and model parameters together; take home one artefact.

    \b
    sweeps validate space.yaml      what is wrong with it, if anything
    sweeps plan space.yaml          what it will come to, before anything starts
    sweeps run space.yaml           search it and export the winner
    sweeps resume latest            go on with it after Ctrl-C or a crash
    sweeps show latest              what came of it
    sweeps predict BUNDLE in.csv    use the winner
    sweeps serve BUNDLE             the same over HTTP
    """


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dir", "root", type=click.Path(path_type=Path), default=None, help="Root of all sweeps.  [default: sweeps-runs]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file: --set limits.max_trials=8")
@click.option("--address", default=None, help="A Ray cluster's address; by default a Ray of this sweep's own.")
@click.option("--tracking-uri", default=None, help="MLflow's.  [default: $MLFLOW_TRACKING_URI, else SQLite in the root]")
@click.option(
    "--storage", default=None, metavar="URL", help="A database for the study, postgresql://...  [default: a journal in the folder]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="Print the end alone.")
def run(file: Path, root: Path | None, as_json: bool, quiet: bool, **how: Any) -> None:
    """Search the space in FILE, log every trial to MLflow, export the winner."""
    from sweeps.controller.api import run as run_sweep

    _drive(functools.partial(run_sweep, file, dir=root, **how), as_json, quiet)


@main.command()
@click.argument("sweep")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--add-trials", type=click.IntRange(min=1), default=None, metavar="N", help="So many more than there were to be.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a limit: --set limits.timeout=2h")
@click.option("--address", default=None, help="A Ray cluster's address.  [default: as the sweep began]")
@click.option("--tracking-uri", default=None, help="MLflow's.  [default: as the sweep began]")
@click.option("--storage", default=None, metavar="URL", help="The study's database, with its password.")
@click.option("--trust", **TRUST)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="Print the end alone.")
@click.option("--dir", "root", **ROOT)
def resume(sweep: str, file: Path | None, add_trials: int | None, root: Path, as_json: bool, quiet: bool, **how: Any) -> None:
    """Go on with SWEEP, which was interrupted or killed; FILE is its space file, if the limits have changed."""
    from sweeps.controller.api import resume as resume_sweep
    from sweeps.controller.sweep_lookup import find

    _drive(functools.partial(resume_sweep, find(sweep, root), file, add_trials=add_trials or 0, **how), as_json, quiet)


def _drive(drive: Any, as_json: bool, quiet: bool) -> None:
    """Call what runs a sweep, show how it stands meanwhile, and print what came of it."""
    show = Progress(silent=quiet or as_json)
    try:
        result = drive(on_progress=show)
    except SweepsError as e:
        if e.result is not None and as_json:
            click.echo(json.dumps(e.result.to_json(), default=str))
        elif isinstance(e, BundleError) and e.result is not None:  # all was trained; the error's line comes after
            show.close()
            click.echo(printable(text.summary(e.result, unexported=True) + "\n"))
        raise
    finally:
        show.close()
    if as_json:
        click.echo(json.dumps(result.to_json(), default=str))
    else:
        click.echo(printable(text.summary(result)))
    if result.reason == "interrupted":
        sys.exit(Interrupted.exit_code)


@main.command()
@click.argument("sweep")
@click.argument("trial")
@click.option("--address", default=None, help="A Ray cluster's address.  [default: as the sweep began]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--dir", "root", **ROOT)
def rerun(sweep: str, trial: str, address: str | None, as_json: bool, root: Path) -> None:
    """Run a TRIAL of SWEEP once more, as it was, and compare; exit code 1 if it differs. Writes nothing."""
    from sweeps.controller.rerun import rerun as rerun_trial
    from sweeps.controller.sweep_lookup import find

    compared = rerun_trial(find(sweep, root), trial, address=address)
    click.echo(json.dumps(compared.to_json()) if as_json else printable(str(compared)))
    sys.exit(0 if compared.equal else 1)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file first.")
def validate(file: Path, overrides: tuple[str, ...]) -> None:
    """Check the space in FILE without running any of its code; every problem with its place."""
    from sweeps.space import load

    space = load(file, tuple(overrides))
    counts = {"dimension": len(space.dimensions), "cell": len(space.cells), "trial": space.limits.max_trials}
    alike = "; the trials differ by their seeds alone" if not space.dimensions and space.limits.max_trials > 1 else ""
    click.echo(f"{file}: valid; " + ", ".join(f"{n} {noun}{'s' * (n != 1)}" for noun, n in counts.items()) + alike)


@main.command()
def schema() -> None:
    """Print the space file's JSON Schema, for an editor that completes and checks as one types."""
    from sweeps.space.json_schema import schema as schema_of_spaces

    click.echo(json.dumps(schema_of_spaces(), indent=1, ensure_ascii=False))


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file first.")
@click.option("--resources", default=None, metavar="CPU=8,GPU=2", help="A machine's.  [default: this one's]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--dir", "root", **ROOT)
def plan(file: Path, overrides: tuple[str, ...], resources: str | None, as_json: bool, root: Path) -> None:
    """Say what the sweep in FILE will come to: trials, shapes, fits, steps, disk. Starts nothing."""
    from sweeps.core import host_resources
    from sweeps.data.preflight import look_at_root
    from sweeps.plan import plan as plan_space
    from sweeps.plan import render
    from sweeps.plan.disk import free_at
    from sweeps.space import load

    look_at_root(root)
    there = host_resources.detect() if resources is None else host_resources.parse_resources(resources)
    memory = host_resources.memory() if resources is None else None
    made = plan_space(load(file, tuple(overrides)), there, free=free_at(root), memory=memory)
    width = min(100, text.width_of(sys.stdout) if sys.stdout.isatty() else 80)
    click.echo(json.dumps(made.to_json()) if as_json else render(made, width, "--resources" if resources else "this machine"))


@main.command()
@click.argument("sweep")
@click.option("--trial", default=None, metavar="ID", help="Export this trial.  [default: the best]")
@click.option("--top", type=click.IntRange(1), default=None, metavar="K", help="Export so many of the best trials.")
@click.option("--pareto", is_flag=True, help="Of several objectives: export every trial that no other dominates.")
@click.option("--refit", is_flag=True, help="Train it once more first, on train and valid together, for the steps it had.")
@click.option("--latest", is_flag=True, help="The trial's latest checkpoint, not that of its best step.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="Folder to write.  [default: SWEEP/exports/ID]")
@click.option("--register", "name", default=None, metavar="NAME", help="Make it a version of this model in MLflow's registry.")
@click.option(
    "--alias",
    default=None,
    metavar="ALIAS",
    help="Move this alias to the version, if it is better, and breaks no constraint that the other keeps.",
)
@click.option("--force", is_flag=True, help="Move the alias in any case.")
@click.option("--trust", **TRUST)
@click.option("--dir", "root", **ROOT)
def export(
    sweep: str,
    trial: str | None,
    top: int | None,
    pareto: bool,
    refit: bool,
    latest: bool,
    output: Path | None,
    name: str | None,
    alias: str | None,
    force: bool,
    trust: bool,
    root: Path,
) -> None:
    """Write the bundle of a trial of SWEEP: its folder, its name in the root or the beginning of that, or `latest`."""
    from sweeps.controller import exports
    from sweeps.controller.sweep_lookup import find
    from sweeps.tracking.mlflow import registry

    if (alias is not None or force) and name is None:
        raise click.UsageError("--alias and --force belong to --register NAME")
    if alias is not None and pareto:
        raise click.UsageError("--alias names one model, and none of a front is the best; give --trial ID")
    if name is not None:
        registry.check_names(name, alias)
    folder = find(sweep, root)
    again = name is not None  # one that is there is registered
    how: dict[str, Any] = {"refit": refit, "latest": latest, "output": output, "again": again, "trust": trust}
    written = exports.export(folder, trial=trial, top=top, pareto=pareto, **how)
    for made in written:
        click.echo(made.path)
        for note in made.notes:
            click.echo(note, err=True)
        if (digest := exports.digest_of(made.path)) is not None:
            click.echo(f"SHA-256 of its manifest: {digest}", err=True)
        for line in exports.register(folder, made.path, name, alias, force) if name is not None else ():
            click.echo(line, err=True)
    if top is not None and len(written) < top:
        why = "no other trial came to its end with a value and still has its checkpoint"
        click.echo(f"note: {len(written)} of --top {top}: {why}", err=True)


@main.command()
@click.argument("sweep")
@click.option(
    "--per-trial", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="A trial keeps its best and its N - 1 latest."
)
@click.option("--top", type=click.IntRange(1), default=None, metavar="K", help="So many of the best trials keep any.  [default: all]")
@click.option("--max-disk", default=None, metavar="SIZE", help="For all together, as 10GB; the worst go first.  [default: no bound]")
@click.option("--dry-run", is_flag=True, help="Say what would be freed, and delete nothing.")
@click.option("--dir", "root", **ROOT)
def gc(sweep: str, per_trial: int, top: int | None, max_disk: str | None, dry_run: bool, root: Path) -> None:
    """Delete checkpoints of SWEEP that neither a resume nor the best trial needs."""
    from sweeps.checkpoints.garbage_collection import bytes_of, clean
    from sweeps.checkpoints.retention import Rule
    from sweeps.controller.sweep_lookup import find

    rule = Rule(per_trial, top, None if max_disk is None else bytes_of(max_disk))
    freed = clean(find(sweep, root), rule, dry_run)
    click.echo(text.freed(freed.to_json(), "would free" if dry_run else "freed"))


@main.command()
@click.argument("sweep")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--dir", "root", **ROOT)
def repair(sweep: str, as_json: bool, root: Path) -> None:
    """Rebuild the damaged study of SWEEP from what can be read of it; what was damaged is kept."""
    from sweeps.controller.repair import repair as repair_sweep
    from sweeps.controller.sweep_lookup import find

    done = repair_sweep(find(sweep, root))
    click.echo(json.dumps(done.to_json()) if as_json else printable(text.repaired(done)))


@main.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", default=None, help="CSV or Parquet to write, a path or a URI.  [default: CSV on stdout]")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that predict a Parquet file, through Ray.")
@click.option("--dir", "root", **ROOT)
def predict(bundle: Path, source: str, output: str | None, workers: int, root: Path) -> None:
    """Predict with BUNDLE, a bundle's folder or a sweep, from the raw rows of INPUT, a CSV or Parquet file or its URI.

    A sweep is a folder, a name in the root or its beginning, or `latest`: the bundle of its winner. One worker needs no Ray.
    """
    from sweeps.bundle import predict_file
    from sweeps.controller.sweep_lookup import bundle_of
    from sweeps.terminal.progress_line import counting

    with counting(sys.stderr if output else None) as told:
        predict_file(bundle_of(bundle, root), source, output or sys.stdout.buffer, told, workers)
    if output is not None:
        click.echo(f"wrote {output}", err=True)


@main.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on; 0 for any free one.")
@click.option("--max-bytes", type=click.IntRange(1), default=10 * 2**20, show_default=True, help="Of a request; a larger one gets 413.")
@click.option("--max-rows", type=click.IntRange(1), default=10_000, show_default=True, help="Of a request; likewise.")
@click.option("--receive-timeout", type=click.IntRange(1), default=30, show_default=True, help="Seconds for a request to arrive, else 408.")
@click.option("--max-connections", type=click.IntRange(1), default=None, help="That are open at once; others wait.  [default: 500]")
@click.option("--allowed-hosts", default=None, metavar="HOST[,HOST]", help="That a request's Host header may name.  [default: any]")
@click.option("--token", default=None, help="That a request must bear. `ps` shows it, so prefer one of the next two.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), default=None, help="A file with it.  [default: $SWEEPS_SERVE_TOKEN, else none]"
)
@click.option("--replicas", type=click.IntRange(1), default=None, help="Processes that answer, under Ray Serve.  [default: this one alone]")
@click.option("--address", default=None, help="A Ray cluster's address, for the replicas; by default a Ray of their own.")
@click.option("--dir", "root", **ROOT)
def serve(
    bundle: Path,
    host: str,
    port: int,
    max_bytes: int,
    max_rows: int,
    receive_timeout: int,
    max_connections: int | None,
    allowed_hosts: str | None,
    token: str | None,
    token_file: Path | None,
    replicas: int | None,
    address: str | None,
    root: Path,
) -> None:
    """Serve BUNDLE, a bundle's folder or a sweep, over HTTP until Ctrl-C: POST rows to /predict.

    A sweep is a folder, a name in the root or its beginning, or `latest`: the bundle of its winner. Needs no Ray, unless by several
    replicas or on a cluster.
    """
    from sweeps.controller.sweep_lookup import bundle_of
    from sweeps.serving.access import Access, token_of
    from sweeps.serving.limits import MAX_CONNECTIONS, Limits

    under_ray = replicas is not None or address is not None
    if under_ray and max_connections is not None:
        text = "does not hold with --replicas and --address, where Ray Serve's proxy listens; put a proxy before it that has the limit"
        raise InputError(Problem("--max-connections", text))
    access = Access.of(allowed_hosts, token_of(token, token_file))
    limits = Limits(max_bytes, max_rows, receive_timeout, max_connections or MAX_CONNECTIONS)
    bundle = bundle_of(bundle, root)

    def say(line: str) -> None:
        click.echo(line, err=True)

    if under_ray:
        from sweeps.serving.replicas import serve as serve_by_replicas

        serve_by_replicas(bundle, host, port, say, limits, access, replicas or 1, address)
    else:
        from sweeps.serving.server import serve as serve_alone

        serve_alone(bundle, host, port, say, limits, access)


@main.command("ls")
@click.option("--dir", "root", **ROOT)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_sweeps(root: Path, as_json: bool) -> None:
    """List the sweeps of a root: state, trials, best, age; the newest first."""
    from sweeps.controller.sweep_lookup import sweeps_in

    found = sweeps_in(root)
    for problem in (problem for sweep in found for problem in sweep.problems):
        click.echo(printable(str(problem)), err=True)
    if as_json:
        click.echo(json.dumps([s.to_json() for s in found]))
    else:
        click.echo(printable(text.listing(found, text.width_of(sys.stdout))) if found else f"no sweeps in {root}")


@main.command()
@click.argument("sweep")
@click.option("--trial", default=None, metavar="ID", help="This trial: its whole configuration, curve and error. `best` is one, too.")
@click.option("--all", "everything", is_flag=True, help="Every trial, not the best 20 alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--dir", "root", **ROOT)
def show(sweep: str, trial: str | None, everything: bool, as_json: bool, root: Path) -> None:
    """Show SWEEP and its trials, or one of them. SWEEP is a folder, a name (the newest of it), the beginning of one, or `latest`."""
    from sweeps.controller import sweep_lookup
    from sweeps.study import record

    seen = sweep_lookup.look_at(sweep_lookup.find(sweep, root))
    study = record.read(seen.folder)
    for problem in seen.problems:
        click.echo(printable(str(problem)), err=True)
    if trial is not None:
        found = sweep_lookup.trial_of(study, trial)
        assert study is not None
        if as_json:
            click.echo(json.dumps(found.to_json()))
        else:
            click.echo(printable(text.one_trial(found, study.metric, study.goal, seen.state_of(found))))
            if (stage := seen.stages.get(found.id, "")).startswith("silent: "):
                click.echo(printable("\n" + stage.removeprefix("silent: ")))
    elif as_json:
        click.echo(json.dumps({**seen.to_json(), "all": [t.to_json() for t in (study.trials if study else ())]}))
    else:
        click.echo(printable(text.one_sweep(seen, study, text.width_of(sys.stdout), None if everything else 20)))


@main.command()
@click.argument("sweep")
@click.argument("trial")
@click.option("--rank", type=int, default=None, help="This worker alone.  [default: all]")
@click.option("-f", "--follow", is_flag=True, help="Go on while the trial runs.")
@click.option("--dir", "root", **ROOT)
def logs(sweep: str, trial: str, rank: int | None, follow: bool, root: Path) -> None:
    """Print what the workers of a TRIAL of SWEEP printed."""
    from sweeps.controller import sweep_lookup

    for line in sweep_lookup.log_lines(sweep_lookup.find(sweep, root), trial, rank, follow):
        click.echo(printable(line, colours=True))


@main.command()
@click.option("--dir", "root", **ROOT)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="Port to listen on; 0 for any free one.")
@click.option("--sweep", default=None, metavar="NAME", help="The sweep to link to.  [default: the newest]")
@click.option("--tracking-uri", default=None, help="MLflow's.  [default: $MLFLOW_TRACKING_URI, else SQLite in the root]")
@click.option("--open", "open_browser", is_flag=True, help="Open the sweep's trials in a browser.")
def ui(root: Path, host: str, port: int, sweep: str | None, tracking_uri: str | None, open_browser: bool) -> None:
    """Serve MLflow's UI on the sweeps of a root, until Ctrl-C."""
    from sweeps.tracking.mlflow.ui import serve_ui

    sys.exit(serve_ui(root, host, port, open_browser, sweep, tracking_uri))


if __name__ == "__main__":
    main()
