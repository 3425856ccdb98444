"""Run the sides of a workload in turn, each in a separate process, and clean up after each run."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import importlib.metadata
import json
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import PINNED, Sample, Side, Task, Workload, WorkloadRecord, median_of
from benchmarks.report_text import goal_lines, table

ROOT = Path(__file__).parent.parent
# Environment variable with the token of a run. All processes of the run have it.
MARK = "SWEEPS_BENCHMARK"
ENDS_WITHIN = 20.0
VERSIONS = ("ray", "torch", "xgboost", "optuna", "mlflow", "scikit-learn", "pandas", "numpy")


class RunFailed(Exception):
    """A run of a side returned no measures. The message gives the reason."""


# ---- the machine


def machine() -> dict[str, str]:
    """Return the facts on which the measures depend: cores, processor, memory, GPUs, versions and
    commit.
    """
    facts = {
        "cores": str(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        )
    }
    with contextlib.suppress(OSError, StopIteration):
        cpu = next(
            line
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
        facts["processor"] = cpu.partition(":")[2].strip()
    with contextlib.suppress(OSError, StopIteration):
        total = next(
            line
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemTotal")
        )
        facts["memory"] = f"{int(total.split()[1]) / 2**20:.0f} GiB"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
        facts["GPUs"] = ", ".join(listed.stdout.split("\n")[:-1])
    facts["system"] = (
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )
    facts["versions"] = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        facts["commit"] = head + (", with changes" if changed.strip() else "")
    return facts


# ---- one run


def run_side(workload: Workload, side: Side, trials: int, profile: bool = False) -> Sample:
    """Run a side once, in a separate process.

    Raises:
        RunFailed: The run failed, took too long, or did not end all of its processes. The message
            contains the last lines of its output.
    """
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix=f"bench-{workload.name}-") as name:
        folder = Path(name)
        out, log = folder / "out.json", folder / "log.txt"
        work = folder / "work"
        work.mkdir()
        environment = {
            **os.environ,
            **PINNED,
            **side.environment,
            MARK: token,
            "PYTHONPATH": str(ROOT),
        }
        command = [
            sys.executable,
            "-m",
            "benchmarks.running",
            workload.name,
            side.name,
            str(trials),
            str(work),
            str(out),
        ]
        with open(log, "w") as file:
            process = subprocess.Popen(
                [*command, *(["--profile"] if profile else [])],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(workload.timeout)
            except BaseException as e:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                _end(token, process.pid)
                for session in Path(tempfile.gettempdir(), "ray").glob(f"session_*_{process.pid}"):
                    shutil.rmtree(
                        session, ignore_errors=True
                    )  # The killed Ray could not delete its own folder.
                if isinstance(e, subprocess.TimeoutExpired):
                    raise RunFailed(
                        f"{workload.name}, {side.name}: took longer than {workload.timeout:.0f} "
                        f"s\n{_tail(log)}"
                    ) from None
                raise
        left = _end(token, process.pid)
        if code or not out.exists():
            raise RunFailed(f"{workload.name}, {side.name}: exit code {code}\n{_tail(log)}")
        if left:
            raise RunFailed(
                f"{workload.name}, {side.name}: left processes behind: {', '.join(left)}"
            )
        return Sample(side.name, trials, json.loads(out.read_text()))


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:])


def _end(token: str, leader: int) -> list[str]:
    """Wait until all processes of a run have ended.

    Kill the processes that do not end, and return their names.
    """
    give_up = time.monotonic() + ENDS_WITHIN
    while (remaining := _left(token, leader)) and time.monotonic() < give_up:
        time.sleep(0.1)
    for pid in remaining:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return list(remaining.values())


def _left(token: str, leader: int) -> dict[int, str]:
    """Return the living processes of a run, with their commands.

    A process belongs to the run if it is in the run's session or has the run's token in its
    environment. Ray's workers overwrite their environment, so the session is also checked.
    """
    processes = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            ours = (
                int(session) == leader
                or f"{MARK}={token}".encode() in (path / "environ").read_bytes()
            )
            if ours and state != "Z" and int(path.name) != os.getpid():
                processes[int(path.name)] = (
                    (path / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")[:80]
                )
    return processes


@contextlib.contextmanager
def local_ray(cpus: int = 2) -> Iterator[Any]:
    """Start a Ray for this process, with the same settings for all sides.

    Delete the folder of its session at the end.
    """
    import ray

    from sweeps.execution.cluster.ray_cluster import NICENESS

    os.environ.setdefault(
        "RAY_worker_niceness", str(NICENESS)
    )  # As in a Ray that sweeps starts. It does not slow down the other sides.
    ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    node = ray._private.worker._global_node
    session = node.get_session_dir_path() if node is not None else None
    try:
        yield ray
    finally:
        ray.shutdown()
        if session is not None:
            shutil.rmtree(session, ignore_errors=True)


# ---- all runs of a workload


def record(
    workload: Workload,
    repeats: int,
    command: str,
    *,
    sides: Sequence[str] = (),
    trials: int | None = None,
    before: int = 0,
) -> WorkloadRecord:
    """Run the sides of a workload in turn, `repeats` times.

    Args:
        workload: The workload.
        repeats: Number of runs of each side.
        command: Command that the user typed.
        sides: Names of the sides to run; empty for all sides.
        trials: Number of trials, if fewer than the sides' default.
        before: Number of repeats that exist already. Each repeat begins with another side, because
            the speed of a machine changes over time.

    Returns:
        The record. If a side fails, the record contains the problem, and the side is not run again.
    """
    load = os.getloadavg()[0]
    began, date = time.monotonic(), datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    samples: list[Sample] = []
    problems: list[str] = []
    if reason := workload.absent():
        return WorkloadRecord(
            workload.name, command, date, machine(), 0.0, problems=(f"Skipped: {reason}",)
        )
    todo = [side for side in workload.sides if not sides or side.name in sides]
    for repeat in range(repeats):
        first = (before + repeat) % max(1, len(todo))
        for side in [*todo[first:], *todo[:first]]:
            n = min(side.trials, trials or side.trials)
            began_side = time.monotonic()
            try:
                samples.append(run_side(workload, side, n))
            except RunFailed as e:
                say(str(e))
                problems.append(f"{side.label}: {str(e).splitlines()[0]}")
                todo.remove(side)
                continue
            numbers = ", ".join(
                f"{k} {v:.4g}" for k, v in samples[-1].values.items() if isinstance(v, int | float)
            )
            say(
                f"{workload.name} {repeat + 1}/{repeats} {side.name} ({n} trials, "
                f"{time.monotonic() - began_side:.0f} s): {numbers}"
            )
    return WorkloadRecord(
        workload.name,
        command,
        date,
        machine(),
        time.monotonic() - began,
        load,
        tuple(samples),
        tuple(problems),
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def end_on_sigterm() -> None:
    """Turn SIGTERM into an exception, so that a run that is ended from outside ends the processes
    that it started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side (default 5)")
    parser.add_argument(
        "--trials", type=int, default=None, help="at most so many trials a run, for a quick look"
    )


def script(workload: Workload, argv: Sequence[str] | None = None) -> int:
    """Run the command line of a single benchmark. It prints the table and writes nothing."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{workload.name}", description=workload.title
    )
    options(parser)
    names = [side.name for side in workload.sides]
    parser.add_argument(
        "--side",
        action="append",
        choices=names,
        default=[],
        help="this side alone; may be repeated",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="run our sides once and show where a trial's time goes",
    )
    given = parser.parse_args(argv)
    end_on_sigterm()
    if given.profile:
        for side in workload.sides:
            if side.name in given.side or (not given.side and side.name == workload.reference):
                measured = run_side(
                    workload, side, min(side.trials, given.trials or side.trials), profile=True
                )
                profile = measured.values.get("profile", "this side has no profile")
                print(f"# {side.label}\n\n{profile}")
        return 0
    done = record(workload, given.repeats, "", sides=given.side, trials=given.trials)
    goals = workload.goals(median_of(done.samples))
    notes = workload.notes(median_of(done.samples))
    print(
        "\n".join(
            [
                workload.title,
                "",
                *table(workload, done.samples),
                "",
                *goal_lines(goals),
                "",
                *notes,
                *done.problems,
            ]
        )
    )
    return 1 if done.problems and done.samples else 0


def _main(argv: Sequence[str]) -> None:
    """Run one side in this process: WORKLOAD SIDE TRIALS FOLDER OUT [--profile]."""
    name, chosen, trials, folder, out = argv[:5]
    workload = importlib.import_module(f"benchmarks.{name}").WORKLOAD
    side = next(side for side in workload.sides if side.name == chosen)
    measured = side.run(Task(int(trials), Path(folder), "--profile" in argv))
    Path(out).write_text(json.dumps(measured))


if __name__ == "__main__":
    _main(sys.argv[1:])
