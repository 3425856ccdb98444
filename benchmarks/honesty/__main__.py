"""The command line of the benchmark of honesty: `python -m benchmarks honesty --help`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.honesty import measure, pools, real, report
from benchmarks.running import ROOT

RESULTS = ROOT / "reports" / "honesty.jsonl"
REAL = ROOT / "reports" / "honesty-real.jsonl"
REAL_TABLES = ("california_housing", "made_missing", "made_linear")
REAL_SWEEPS = 30
PAGE = ROOT / "reports" / "honesty.md"


def main(arguments: list[str] | None = None) -> None:
    """Make the tables of predictions, run simulated sweeps, or write the report."""
    cli = argparse.ArgumentParser(prog="python -m benchmarks honesty", description=__doc__)
    cli.add_argument("action", choices=["make", "run", "real", "report"])
    cli.add_argument("--data", type=Path, help="folder of tables")
    cli.add_argument("--pools", type=Path, help="folder of the tables of predictions")
    cli.add_argument("--sweeps", type=int, default=100, help="simulated sweeps of each table")
    cli.add_argument("--tables", help="these alone, separated by ,")
    cli.add_argument("--results", type=Path, default=RESULTS, help="the file of the results")
    cli.add_argument("--work", type=Path, help="folder of the real sweeps")
    cli.add_argument("--minutes", type=float, default=0.5, help="time of each real sweep")
    given = cli.parse_args(arguments)
    names = (*pools.DEVELOPMENT, *pools.JUDGEMENT)
    if given.tables:
        names = tuple(given.tables.split(","))
    if given.action == "report":
        report.write(given.results, PAGE)
        report.write_real(REAL, PAGE)
        return
    if given.action == "real":
        if given.data is None or given.work is None:
            cli.error("`real` needs --data and --work")
        rows = real.measured(given.data, given.work, REAL_TABLES, REAL_SWEEPS, given.minutes)
        measure.write(rows, REAL)
        return
    if given.pools is None or (given.action == "make" and given.data is None):
        cli.error("`make` needs --data and --pools, and `run` needs --pools")
    if given.action == "make":
        pools.make(given.data, given.pools, names)
    else:
        measure.write(measure.measured(given.pools, names, given.sweeps), given.results)


if __name__ == "__main__":
    main()
