"""The command line: verbs, what they print, exit codes."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from sweeps import __version__
from sweeps.errors import Interrupted, SweepsError


class _Group(click.Group):
    """Prints our own errors as lines, without a traceback, and exits with their code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SweepsError as e:
            click.echo(str(e), err=True)
            ctx.exit(e.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(Interrupted.exit_code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="sweeps")
def main() -> None:
    """Tune preprocessors, scaling, data and model parameters together; take home one artefact.

    \b
    sweeps validate space.yaml      what is wrong with it, if anything
    sweeps run space.yaml           search it and export the winner
    sweeps predict BUNDLE in.csv    use the winner
    """


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dir", "root", type=click.Path(path_type=Path), default=None, help="Root of all sweeps.  [default: sweeps-runs]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file: --set limits.max_trials=8")
@click.option("--address", default=None, help="A Ray cluster's address; by default a Ray of this sweep's own.")
@click.option("--tracking-uri", default=None, help="MLflow's.  [default: $MLFLOW_TRACKING_URI, else SQLite in the root]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="Print the end alone.")
def run(
    file: Path, root: Path | None, overrides: tuple[str, ...], address: str | None, tracking_uri: str | None, as_json: bool, quiet: bool
) -> None:
    """Search the space in FILE, log every trial to MLflow, export the winner."""
    from sweeps.orchestrator import run as run_sweep

    show = _Progress(silent=quiet or as_json)
    try:
        result = run_sweep(file, dir=root, overrides=overrides, address=address, tracking_uri=tracking_uri, on_progress=show)
    except SweepsError as e:
        if e.result is not None and as_json:
            click.echo(json.dumps(e.result.to_json(), default=str))
        raise
    finally:
        show.close()
    if as_json:
        click.echo(json.dumps(result.to_json(), default=str))
    else:
        click.echo(_summary(result))
    if result.reason == "interrupted":
        sys.exit(Interrupted.exit_code)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file first.")
def validate(file: Path, overrides: tuple[str, ...]) -> None:
    """Check the space in FILE without running any of its code; every problem with its place."""
    from sweeps.space import load

    space = load(file, tuple(overrides))
    counts = {"dimension": len(space.dimensions), "cell": len(space.cells), "trial": space.limits.max_trials}
    click.echo(f"{file}: valid; " + ", ".join(f"{n} {noun}{'s' * (n != 1)}" for noun, n in counts.items()))


@main.command()
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("--trial", default=None, metavar="ID", help="Export this trial.  [default: the best]")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="Folder to write.  [default: SWEEP/exports/ID]")
def export(sweep: Path, trial: str | None, output: Path | None) -> None:
    """Write the bundle of a trial of SWEEP, a sweep's folder."""
    from sweeps.orchestrator import export as export_sweep

    click.echo(export_sweep(sweep, trial=trial, output=output))


@main.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="CSV or Parquet to write.  [default: CSV on stdout]")
def predict(bundle: Path, source: Path, output: Path | None) -> None:
    """Predict with BUNDLE from the raw rows of INPUT, a CSV or Parquet file. Needs no Ray cluster."""
    from sweeps.bundle import predict_file

    result: Any = predict_file(bundle, source, output)
    if output is None:
        click.echo(result.to_csv(index=False), nl=False)
    else:
        click.echo(f"wrote {result}", err=True)


class _Progress:
    """One line that renews itself on a terminal; a line now and then where there is none."""

    EVERY = 10.0

    def __init__(self, silent: bool):
        self.silent, self.terminal = silent, sys.stderr.isatty()
        self.said, self.at, self.width = "", time.monotonic(), 0
        self.stopping = False

    def __call__(self, snapshot: Any) -> None:
        if snapshot.reason == "interrupted" and not self.stopping:
            self.stopping = True
            self.close()
            click.echo("stopping: what finished is kept and the best of it exported; Ctrl-C again stops at once", err=True)
        if self.silent:
            return
        line = _line(snapshot)
        if self.terminal:
            sys.stderr.write("\r" + line.ljust(self.width))
            sys.stderr.flush()
            self.width = len(line)
        elif line != self.said and time.monotonic() - self.at >= self.EVERY:
            click.echo(line, err=True)
            self.at = time.monotonic()
        self.said = line

    def close(self) -> None:
        if self.width:
            sys.stderr.write("\n")
            self.width = 0


def _line(snapshot: Any) -> str:
    """Trials by state, the best so far, time left."""
    s = snapshot.states
    ended = s["COMPLETE"] + s["PRUNED"] + s["FAIL"]
    parts = [f"{ended}/{snapshot.total} trials", f"{s['RUNNING']} running", f"{s['PRUNED']} pruned"]
    if s["FAIL"]:
        parts.append(f"{s['FAIL']} failed")
    if snapshot.best:
        parts.append(f"best {snapshot.best[1]:.6g} (trial {snapshot.best[0]})")
    parts.append(_clock(snapshot.seconds) + (f", about {_clock(snapshot.left)} left" if snapshot.left is not None else ""))
    return " · ".join(parts)


def _clock(seconds: float) -> str:
    seconds = int(seconds)
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}" if seconds >= 3600 else f"{seconds // 60}:{seconds % 60:02d}"


def _summary(result: Any) -> str:
    """What a person reads at the end: the best trial, the bundle, what to type next."""
    counts = ", ".join(f"{n} {state}" for state, n in result.trials.items() if n or state == "completed")
    lines = [f"{result.sweep}: {counts} in {_clock(result.seconds)}; {result.fits} preprocessors fitted"]
    if result.reason:
        lines[0] += f" (ended early: {result.reason})"
    lines += [f"note: {note}" for note in result.notes]
    if result.best is None:
        return "\n".join([*lines, f"folder  {result.dir}"])
    best = result.best
    test = f", test {best['test']:.6g}" if best["test"] is not None else ""
    lines += ["", f"best trial {best['trial']}: {best['value']:.6g}{test}"]
    workers = best["scaling"]["num_workers"]
    each = ", ".join(f"{v:g} {k}" for k, v in best["scaling"]["resources_per_worker"].items())
    lines += [f"  preprocessor  {best['preprocessor']}", f"  scaling       {workers} worker{'s' * (workers > 1)} × {each}"]
    lines += [
        f"  {name:<13} {value:.6g}" if isinstance(value, float) else f"  {name:<13} {value}" for name, value in best["params"].items()
    ]
    lines += ["", f"folder  {_short(result.dir)}"]
    if result.bundle:
        rows = next(result.bundle.rglob("check.parquet"), Path("rows.csv"))
        lines += [f"bundle  {_short(result.bundle)}", "", "next:", f"  {_typed('sweeps')} predict {_short(result.bundle)} {_short(rows)}"]
    elif result.checkpoint:
        lines += [f"checkpoint  {_short(result.checkpoint)} (the trainer names no `load`, so there is no bundle)", "", "next:"]
    else:
        lines += ["", "next:"]
    uri = result.mlflow["tracking_uri"]
    lines.append(f"  {_typed('mlflow')} ui --backend-store-uri {uri}" if "://" in uri and not uri.startswith("http") else f"  open {uri}")
    return "\n".join(lines)


def _typed(command: str) -> str:
    """How a command of this environment is typed: by its name where the shell finds it, else by its path."""
    if shutil.which(command):
        return command
    beside = Path(sys.executable).with_name(command)
    return _short(beside) if beside.exists() else command


def _short(path: Path) -> str:
    """Relative to the working directory where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    main()
