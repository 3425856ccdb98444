"""`python -m benchmarks [WORKLOAD ...]`: run workloads, save their samples, and write the report.

The samples are in reports/benchmarks.json. The report is reports/benchmarks.md. `python -m
benchmarks tables` and `python -m benchmarks honesty` are benchmarks of their own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter
from pathlib import Path

from benchmarks.common import Workload, WorkloadRecord
from benchmarks.common import median_of as medians
from benchmarks.report_text import met, report
from benchmarks.running import ROOT, end_on_sigterm, options, record, say

NAMES = (
    "trainers",
    "spaces",
    "xgb_small",
    "ddp_digits",
    "taxi_prep",
    "sleepers",
    "mlflow_cost",
    "memory",
    "trial_memory",
    "cold_start",
    "shapes",
    "tutorials",
    "gpu",
)
OUT = ROOT / "reports" / "benchmarks.md"


def workloads() -> list[Workload]:
    """Return all workloads in the order of the report."""
    return [importlib.import_module(f"benchmarks.{name}").WORKLOAD for name in NAMES]


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] and argv[0] in ("tables", "honesty"):
        return importlib.import_module(f"benchmarks.{argv[0]}.__main__").main(argv[1:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Run the benchmarks and write the report."
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"these alone: {', '.join(NAMES)}"
    )
    options(parser)
    parser.add_argument(
        "--out", type=Path, default=OUT, help="the report; its samples are kept beside it, as .json"
    )
    parser.add_argument(
        "--more",
        action="store_true",
        help="add to the samples that are kept, of this machine and these versions",
    )
    parser.add_argument(
        "--render", action="store_true", help="run nothing, write the report from the samples"
    )
    given = parser.parse_args(argv)
    if unknown := [name for name in given.workloads if name not in NAMES]:
        parser.error(f"no workload `{unknown[0]}`; there are: {', '.join(NAMES)}")
    end_on_sigterm()
    kept = given.out.with_suffix(".json")
    known = (
        {name: WorkloadRecord.of_json(r) for name, r in json.loads(kept.read_text()).items()}
        if kept.exists()
        else {}
    )
    every = workloads()
    failed = False
    for workload in every:
        if given.render or (given.workloads and workload.name not in given.workloads):
            continue
        command = f"python -m benchmarks {workload.name} --repeats {given.repeats}" + (
            f" --trials {given.trials}" if given.trials else ""
        )
        command += " --more" if given.more else ""
        kept_before = known[workload.name].samples if given.more and workload.name in known else ()
        before = max(Counter(sample.side for sample in kept_before).values(), default=0)
        done = record(workload, given.repeats, command, trials=given.trials, before=before)
        if not done.samples and workload.name in known and workload.absent() is not None:
            say(f"{workload.name}: {done.problems[0]}; the report keeps what it had")
            continue
        failed |= bool(done.problems and done.samples)
        known[workload.name] = (
            known[workload.name].joined(done) if given.more and workload.name in known else done
        )
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(
            json.dumps({name: r.to_json() for name, r in known.items()}, indent=1) + "\n"
        )
        given.out.write_text(
            report(every, known)
        )  # Write after each workload, so that an interrupted run keeps its results.
    given.out.write_text(report(every, known))
    for workload in every:
        if workload.name in known and known[workload.name].samples:
            goals = workload.goals(medians(known[workload.name].samples))
            say(f"{workload.name}: {sum(met(g) is True for g in goals)} of {len(goals)} goals met")
    say(f"wrote {given.out}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
