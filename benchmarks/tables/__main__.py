"""The command line of the benchmark of tables: `python -m benchmarks tables --help`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.running import ROOT, say
from benchmarks.tables import cells, report
from benchmarks.tables.catalog import Table, tables
from benchmarks.tables.cells import Cell
from benchmarks.tables.peers import TOOLS, MissingEnvironment, make_environments
from benchmarks.tables.run_cell import Options, run_cell, write_split
from benchmarks.tables.split import DEVELOPMENT

RESULTS = ROOT / "reports" / "tables.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = parser().parse_args(argv)
    if given.verb == "list":
        print(report.catalog(tables().values()))
    elif given.verb == "peers":
        if given.peers is None:
            parser().error("peers: --peers FOLDER is missing")
        make_environments(given.peers)
    elif given.verb == "report":
        report.write(given.results, given.results.with_suffix(".md"))
    else:
        try:
            run(given)
        except MissingEnvironment as e:
            parser().error(str(e))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    cli = argparse.ArgumentParser(
        prog="python -m benchmarks tables",
        description="Compare the models that tools make of a table in equal time.",
    )
    cli.add_argument("verb", choices=["list", "peers", "run", "report"])
    which = cli.add_mutually_exclusive_group()
    which.add_argument("--dev", action="store_true", help="the six tables for development")
    which.add_argument("--held", action="store_true", help="the tables that are held back")
    which.add_argument("--extreme", action="store_true", help="tables at the limits")
    cli.add_argument("--tables", help="these alone, separated by ,")
    usual = ",".join(name for name, tool in TOOLS.items() if not tool.is_extra)
    cli.add_argument("--tools", default=usual, help=f"separated by , (default: {usual})")
    cli.add_argument("--seeds", default="0", help="such as 0 or 0-2 (default: 0)")
    cli.add_argument("--seconds", type=int, default=60, help="of wall time for each tool")
    cli.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    cli.add_argument("--as", default="sweeps", metavar="NAME", dest="name", help="keep sweeps as")
    cli.add_argument("--again", action="store_true", help="measure sweeps again")
    cli.add_argument("--retry", action="store_true", help="measure tools that failed again")
    cli.add_argument("--results", type=Path, default=RESULTS, help="the file of the results")
    cli.add_argument("--work", type=Path, help="keep all files here (default: delete them)")
    for name, what in (("data", "tables"), ("peers", "the environments of the peers")):
        variable = f"SWEEPS_BENCHMARK_{name.upper()}"
        cli.add_argument(
            f"--{name}",
            type=lambda text: Path(text).resolve(),
            default=os.environ.get(variable) or None,
            help=f"folder of {what} (default: ${variable})",
        )
    return cli


def chosen(given: argparse.Namespace) -> list[Table]:
    """Return the tables that are asked for and that can be read.

    Raises:
        SystemExit: A name is unknown, or a table is held back and `--held` is missing.
    """
    known = tables()
    if given.tables:
        names = given.tables.split(",")
    elif given.dev:
        names = list(DEVELOPMENT)
    else:
        names = [
            name
            for name, table in known.items()
            if (table.is_held, table.is_extreme) == (given.held, given.extreme)
        ]
    picked = []
    for name in names:
        if name not in known:
            parser().error(f"no table `{name}`; there are: {', '.join(known)}")
        if known[name].is_held and not given.held:
            parser().error(f"`{name}` is held back until the report; with --held it is read")
        file = known[name].file
        if file is not None and (given.data is None or not (given.data / file).exists()):
            say(f"{name}: left out, because --data FOLDER has no {file}")
            continue
        picked.append(known[name])
    return picked


def wanted(table: Table, seed: int, given: argparse.Namespace) -> list[Cell]:
    """Return the cells of a table and a seed, without results."""
    cells = []
    for name in given.tools.split(","):
        if name not in TOOLS:
            parser().error(f"no tool `{name}`; there are: {', '.join(TOOLS)}")
        budget = given.seconds if TOOLS[name].takes_time else 0
        kept_as = given.name if name == "sweeps" else name
        cells.append(Cell(table.name, table.task, 0, 0, seed, kept_as, budget))
    return cells


def run(given: argparse.Namespace) -> None:
    """Measure the cells that are not kept yet, seed by seed; keep each as soon as it has ended."""
    options = Options(given.data, given.peers, tuple(given.overrides), given.name)
    first, _, last = given.seeds.partition("-")
    kept = [c for c in cells.read(given.results) if not (given.again and c.tool == given.name)]
    for seed in range(int(first), int(last or first) + 1):
        for table in chosen(given):
            todo = cells.missing(wanted(table, seed, given), kept, given.retry)
            if todo:
                run_table(table, todo, options, given)


def run_table(
    table: Table, todo: Sequence[Cell], options: Options, given: argparse.Namespace
) -> None:
    """Measure cells of one table and seed."""
    with folder_of(given.work, f"{table.name}-{todo[0].seed}") as folder:
        rows, columns = write_split(table, options.data, todo[0].seed, folder)
        for cell in todo:
            work = folder / f"{cell.tool}-{cell.budget}"
            shutil.rmtree(work, ignore_errors=True)  # of an earlier run with --work
            work.mkdir()
            cell = dataclasses.replace(cell, rows=rows, columns=columns)
            done = run_cell(cell, table, options, folder, work)
            cells.append(given.results, done)
            say(f"{table.name}, seed {cell.seed}, {cell.tool}: {report.line(done)}")


@contextlib.contextmanager
def folder_of(work: Path | None, name: str) -> Iterator[Path]:
    """Yield a folder in `work`, or a temporary one that is deleted at the end."""
    if work is None:
        with tempfile.TemporaryDirectory(prefix="bench-tables-") as temporary:
            yield Path(temporary)
    else:
        (work / name).mkdir(parents=True, exist_ok=True)
        yield (work / name).resolve()
