"""`python -m tests.soak`: kill a sweep at every point where state is written, then at random times,
and write what was lost.

The report is reports/crashes.md. After each kill, the sweep is resumed, and the resume is killed at
the next point. At the end, the sweep is compared with an undisturbed sweep. Then the fuzz tests run
with more cases; they damage every kind of input.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from sweeps.study import record_reader
from tests.faults.crashing import POINTS
from tests.faults.test_crash import SPACE, outcome, runs_of
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
HOW = ("the driver", "Ray", "everything")
FUZZ = ("tests/fuzz", "tests/serving/test_fuzz.py", "tests/study/test_journal_repair.py")


def start(*args: object, point: str | None = None) -> subprocess.Popen[str]:
    module = ["tests.faults.crashing", point] if point else ["sweeps.cli"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    full = [sys.executable, "-m", *module, *map(str, args)]
    return subprocess.Popen(
        full,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


def stands(root: Path) -> dict[str, Any]:
    """Return the recorded trials that have ended, by id."""
    folders = list(root.glob("crash-*"))
    study = record_reader.read(folders[0]) if folders else None
    ended = (t for t in study.trials if t.result.state.name != "RUNNING") if study else ()
    return {t.id: (t.result.state.name, t.params, t.curve, t.began, t.end_time) for t in ended}


def kill(process: subprocess.Popen[str], how: str) -> str:
    """Send SIGKILL to the driver, to the first processes of its Ray, or to the driver and all its
    children at once.

    Returns:
        What was killed. A driver whose Ray dies while it starts tries once more; then the driver is
        killed as well.
    """
    driver = psutil.Process(process.pid)

    def rays() -> list[psutil.Process]:
        return [p for p in driver.children(recursive=True) if p.name() in ("raylet", "gcs_server")]

    def ended() -> bool:
        return process.poll() is not None

    if how == "Ray":
        wait_until(lambda: ended() or rays(), 120, "Ray's first processes")
        victims = [] if ended() else rays()
    else:
        victims = [driver, *(driver.children(recursive=True) if how == "everything" else [])]
    for victim in victims:
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            continue
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"{how} as it started, and the driver, which had started another"
    return how


def lost(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What was on record and is not any more, or is something else."""
    gone = [name for name, trial in before.items() if after.get(name) != trial]
    return ", ".join(gone) or "nothing"


def undisturbed(folder: Path, text: str) -> Any:
    folder.mkdir()
    (folder / "crash.yaml").write_text(text)
    out, err = start("run", folder / "crash.yaml", "--dir", folder / "runs", "--json").communicate()
    if not out:
        raise SystemExit(err)
    return outcome(Path(json.loads(out)["dir"]))


def fuzzed(cases: int) -> list[str]:
    """Run the fuzz tests with at most `cases` cases each, and return the lines of the report."""
    began = time.time()
    full = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "3600",
        "--hypothesis-show-statistics",
        *FUZZ,
    ]
    done = subprocess.run(
        full,
        env={**os.environ, "SWEEPS_FUZZ_EXAMPLES": str(cases)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    print(done.stdout[-2000:], flush=True)
    counted = next(
        (
            line
            for line in reversed(done.stdout.splitlines())
            if " passed" in line or " failed" in line
        ),
        "nothing ran",
    )
    tried = sum(map(int, re.findall(r"(\d+) passing, ", done.stdout)))
    minutes = (time.time() - began) / 60
    return [
        "",
        "## Damaged input",
        "",
        (
            f"`SWEEPS_FUZZ_EXAMPLES={cases} pytest {' '.join(FUZZ)}`, in {minutes:.0f} min: space "
            "files, data files, bundles,"
        ),
        "every JSON file of a sweep's folder, the journal and its repair, and requests to `serve`.",
        "",
        f"- cases tried: {tried:,}",
        (
            "- no traceback, no hang over 10 s, no file touched outside the folder: "
            f"{'yes' if done.returncode == 0 else 'NO'}"
        ),
        f"- tests: {counted.split(' in ')[0]}",
    ]


class Sweep:
    """A sweep that is killed and resumed many times."""

    def __init__(self, folder: Path, text: str) -> None:
        folder.mkdir()
        self.file, self.root = folder / "crash.yaml", folder / "runs"
        self.file.write_text(text)
        self.uri = f"sqlite:///{folder / 'mlflow.db'}"

    def go(self, point: str | None = None) -> subprocess.Popen[str]:
        has_started = any(self.root.glob("crash-*/origin.json"))
        args = (
            ("resume", "latest") if has_started else ("run", self.file, "--tracking-uri", self.uri)
        )
        return start(*args, "--dir", self.root, "--json", point=point)

    def conclude(self, expected: Any) -> list[tuple[str, str]]:
        """Resume the sweep until it ends, and return pairs of a statement and a result for the
        report.
        """
        began = time.time()
        out, err = self.go().communicate()
        if not out:
            raise SystemExit(err)
        folder = Path(json.loads(out)["dir"])
        runs = runs_of(
            self.uri, folder.name
        )  # Raises an error if a trial has two runs, or if a run is RUNNING.
        study = record_reader.read(folder)
        assert study is not None
        metrics = all(tuple(runs[t.id][2]["loss"]) == t.curve for t in study.trials)
        return [
            (
                "the trials, their values and the best trial are as in an undisturbed sweep",
                "yes" if outcome(folder) == expected else "NO",
            ),
            (
                "MLflow has each trial exactly once, and no trial is RUNNING",
                "yes" if set(runs) == {"sweep", *(t.id for t in study.trials)} else "NO",
            ),
            ("MLflow has each report exactly once", "yes" if metrics else "NO"),
            ("the last resume took", f"{time.time() - began:.0f} s"),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="number of kills at random times")
    parser.add_argument(
        "--trials",
        type=int,
        default=200,
        help="number of trials of the sweep that is killed at random times",
    )
    parser.add_argument(
        "--cases", type=int, default=3000, help="number of damaged inputs for each fuzz test"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "reports" / "crashes.md")
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    lines = [
        "# Crashes: what the soak test tried, and what was lost",
        "",
        (
            "The soak test kills a sweep many times and resumes it each time. At the end it "
            "compares "
            "the sweep with an undisturbed sweep."
        ),
        "",
        (
            f"    python -m tests.soak --kills {asked.kills} --trials {asked.trials} --cases "
            f"{asked.cases} --seed {asked.seed}"
        ),
        "",
    ]
    with tempfile.TemporaryDirectory(prefix="sweeps-soak-") as temporary:
        folder = Path(temporary)
        text = SPACE.format(trials=12)
        sweep, expected = Sweep(folder / "points", text), undisturbed(folder / "whole", text)
        lines += [
            "## Kill at each point where state is written",
            "",
            (
                "One sweep of 12 trials, one trial at a time. At each point, the driver got "
                "SIGKILL, "
                "and then the sweep was resumed."
            ),
            "",
        ]
        lines += ["| point | trials that had ended | lost |", "|---|---|---|"]
        for name, point in POINTS.items():
            before = stands(sweep.root)
            process = sweep.go(name)
            process.communicate()
            died = process.returncode == -signal.SIGKILL
            after = stands(sweep.root)
            lines.append(
                f"| {point.what}{'' if died else ' (was not reached)'} | {len(after)} | "
                f"{lost(before, after)} |"
            )
            print(lines[-1], flush=True)
        lines += ["", *(f"- {what}: {value}" for what, value in sweep.conclude(expected)), ""]

        text = SPACE.format(trials=asked.trials).replace(":plain", ":slow")
        sweep, expected = Sweep(folder / "random", text), undisturbed(folder / "slow", text)
        lines += [
            f"## {asked.kills} kills at random times",
            "",
            f"One sweep of {asked.trials} trials, one trial at a time.",
            "",
        ]
        lines += [
            "| killed | seconds after the start | trials that had ended | lost |",
            "|---|---|---|---|",
        ]
        kills = 0
        for _ in range(asked.kills):
            before, how, after_s = stands(sweep.root), chance.choice(HOW), chance.uniform(0.5, 14.0)
            process = sweep.go()
            try:
                process.communicate(timeout=after_s)
            except subprocess.TimeoutExpired:
                how = kill(process, how)
            else:
                how = "nothing, because the sweep had ended"
            after, kills = stands(sweep.root), kills + (process.returncode != 0)
            lines.append(f"| {how} | {after_s:.1f} | {len(after)} | {lost(before, after)} |")
            print(lines[-1], flush=True)
        lines += [
            "",
            f"- kills before the sweep ended: {kills}{'' if kills == asked.kills else ', NO'}",
        ]
        lines += [f"- {what}: {value}" for what, value in sweep.conclude(expected)]
    lines += fuzzed(asked.cases)
    asked.output.write_text("\n".join(lines) + "\n")
    if any("NO" in line.split(": ")[-1] for line in lines if line.startswith("- ")):
        raise SystemExit("something was lost")


if __name__ == "__main__":
    main()
