"""`python -m benchmarks.ten_thousand`: run many trials that do nothing, and measure the time for
each trial, early and late.

The loop of a trial reports once and ends. All time is therefore overhead of sweeps: sampling, the
study, Tune, the pool and MLflow. Then the sweep is resumed for one more trial. Writes
reports/ten_thousand.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.running import machine

ROOT = Path(__file__).parent.parent
SPACE = """\
name: ten-thousand
trainer: {{loop: "benchmarks.ten_thousand:nothing", backend: none}}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {{metric: loss, goal: minimize}}
search: {{algorithm: {algorithm}, seed: 1}}
limits: {{max_trials: {trials}}}
space:
  params:
    eta: {{loguniform: [1e-4, 1.0]}}
    depth: {{randint: [1, 9]}}
    kind: {{choice: [a, b, c]}}
"""
# Runs a sweep. The last line of the output has the times at which trials ended, and the memory of
# the process.
DRIVE = """
import json, sys, time
import psutil
import sweeps
began, seen = time.time(), []
def note(s):
    if not seen or s.ended - seen[-1][1] >= int(sys.argv[3]):
        seen.append((time.time() - began, s.ended, psutil.Process().memory_info().rss))
result = sweeps.run(sys.argv[1], dir=sys.argv[2], on_progress=note)
note_end = (time.time() - began, sum(result.trials.values()), psutil.Process().memory_info().rss)
print(json.dumps({"seen": [*seen, note_end], "dir": str(result.dir), "notes": result.notes, \
"trials": result.trials}))
"""
RESUME = """
import json, sys, time
began, first = time.time(), []
import sweeps
def note(s):
    if s.rows and not first:
        first.append(time.time() - began)
result = sweeps.resume(sys.argv[1], add_trials=1, on_progress=note)
print(json.dumps({"first": first and first[0], "whole": time.time() - began, \
"trials": result.trials, "notes": result.notes}))
"""


def nothing(config):
    import ray.train

    ray.train.report({"loss": config["eta"]})


def python(code: str, *args: object) -> dict:
    """Run Python code in a separate process, and return the last line of its output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def cost_of(seen: list[list[float]], first: int, last: int) -> float:
    """Return the seconds for each trial between two counts of ended trials, from the notes that are
    nearest to these counts.
    """
    begin = min(seen, key=lambda s: abs(s[1] - first))
    end = min(seen, key=lambda s: abs(s[1] - last))
    return (end[0] - begin[0]) / max(1, end[1] - begin[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--algorithm", default="random")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "reports" / "ten_thousand.md")
    asked = parser.parse_args()
    part = max(1, asked.trials // 10)
    with tempfile.TemporaryDirectory(prefix="sweeps-ten-") as folder:
        file = Path(folder, "space.yaml")
        file.write_text(SPACE.format(trials=asked.trials, algorithm=asked.algorithm))
        began = time.time()
        ran = python(DRIVE, file, Path(folder, "runs"), max(1, part // 10))
        wall = time.time() - began
        journal = Path(ran["dir"], "study.journal").stat().st_size
        again = python(RESUME, ran["dir"])
    seen = ran["seen"]
    # The first trials wait for processes to start, so a tenth of the first part is left out.
    early, late = (
        cost_of(seen, part // 10, part),
        cost_of(seen, asked.trials - part, asked.trials - part // 10),
    )
    rows = [
        ("wall time, including start and end", f"{wall:.0f} s"),
        ("time for each trial, mean", f"{wall / asked.trials * 1000:.1f} ms"),
        (f"time for each of the first {part} trials", f"{early * 1000:.1f} ms"),
        (f"time for each of the last {part} trials", f"{late * 1000:.1f} ms"),
        ("ratio of last to first (goal: at most 1.5)", f"{late / early:.2f}"),
        (
            "driver's memory after the first tenth, and at the end",
            " and ".join(f"{m / 2**20:.0f} MiB" for m in memory(seen, part)),
        ),
        ("the study's journal", f"{journal / 2**20:.1f} MiB"),
        (
            "after a resume: time until one more trial ran (goal: at most 10 s)",
            f"{again['first']:.1f} s" if again["first"] else "not seen",
        ),
        ("after a resume: time until the sweep ended, including MLflow", f"{again['whole']:.1f} s"),
    ]
    title = f"# {asked.trials:,} trials that do nothing, {asked.algorithm}\n\n"
    command = (
        f"    python -m benchmarks.ten_thousand --trials {asked.trials} --algorithm "
        f"{asked.algorithm}\n\n"
    )
    where = "; ".join(f"{name} {value}" for name, value in machine().items()) + ".\n\n"
    table = "| what | measured |\n|---|---|\n" + "".join(
        f"| {what} | {value} |\n" for what, value in rows
    )
    notes = "".join(f"\n{note}\n" for note in dict.fromkeys((*ran["notes"], *again["notes"])))
    asked.output.write_text(f"{title}{command}{where}{table}{notes}")
    print(table + notes)


def memory(seen: list[list[float]], part: int) -> tuple[float, float]:
    """Return the driver's resident memory in bytes, when a tenth of the trials had ended and at the
    end.
    """
    return min(seen, key=lambda s: abs(s[1] - part))[2], seen[-1][2]


if __name__ == "__main__":
    main()
