"""Measure where the time of a trial in sweeps goes.

Stopwatches measure the path of a trial through the processes, and py-spy samples what each process
does. Only `--profile` uses this module. The stopwatches wrap decisions of the driver and the
training loop, so this module uses internal names of sweeps. If such a name no longer exists, the
profile lacks the line.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Task, steady
from benchmarks.ours import sweep
from benchmarks.report_text import shown

RATE = 200  # samples a second
SECONDS = 4.0
ROOMS = ("ray::_Pool", "ray::_DataActor", "ray::Worker")


def swept(
    task: Task,
    space: Callable[[str, dict[str, Any]], str],
    trainer: str,
    loop: str,
    constants: dict[str, Any],
    tried: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run a sweep and return its measures. If `task.profile` is True, they include `profile`.

    Args:
        task: Parameters of the run.
        space: Function that returns the space file, given a trainer and constants of `params`.
        trainer: The trainer as the space file names it.
        loop: The training loop as a reference.
        constants: Constants of `params`.
        tried: List to which the `params` of each trial are appended, in the order of the trials'
            numbers.
    """
    tried = [] if tried is None else tried
    if not task.profile:
        done = sweep(task, space(trainer, constants))
        tried += done.tried
        return done.numbers
    backend = "torch" if "torch" in loop or "ddp" in loop else "none"
    times = task.folder / "loops.jsonl"
    timed = f'{{loop: "benchmarks.probe_loops:timed", backend: {backend}}}'
    clocks: list[tuple[str, str, float, float]] = []
    with _stopwatches(clocks), _sampled(task.folder, times) as stacks:
        done = sweep(task, space(timed, {**constants, "loop": f'"{loop}"', "times": str(times)}))
    tried += done.tried
    loops = {
        name: (began, ended)
        for name, began, ended in map(json.loads, times.read_text().splitlines())
    }
    text = [
        f"{shown(steady(done.ends), 'ms')} a trial, with the stopwatches and py-spy",
        "",
        *way(clocks, loops),
        "",
        *stacks(),
    ]
    return {**done.numbers, "profile": "\n".join(text)}


# ---- by the clock


@contextlib.contextmanager
def _stopwatches(clocks: list[tuple[str, str, float, float]]) -> Iterator[None]:
    """Record when the driver starts a trial and when it learns that the trial ended.

    Each entry is (what, trial, start, end).
    """
    from sweeps.controller.controller import SweepController

    methods = {"begin": "start_trial", "hear": "on_update", "tick": "poll"}
    real = {name: getattr(SweepController, method) for name, method in methods.items()}

    def watched(name: str, function: Any) -> Any:
        @functools.wraps(function)
        def call(self: Any, *what: Any, **named: Any) -> Any:
            began = time.time()
            result = function(self, *what, **named)
            if name == "begin":
                clocks.append((name, result, began, time.time()))
            elif name == "tick":
                clocks.append((name, "", began, time.time()))
            elif getattr(what[1], "state", None) is not None:
                clocks.append((name, what[0], began, time.time()))
            return result

        return call

    for name, function in real.items():
        setattr(SweepController, methods[name], watched(name, function))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(SweepController, methods[name], function)


def way(
    clocks: list[tuple[str, str, float, float]], loops: dict[str, tuple[float, float]]
) -> list[str]:
    """Return the median times between the stations of a trial.

    The first eighth of the trials is left out.
    """
    begins = {trial: (began, ended) for what, trial, began, ended in clocks if what == "begin"}
    ends: dict[str, tuple[float, float]] = {}
    for what, trial, began, ended in clocks:
        if what == "hear":
            ends.setdefault(trial, (began, ended))
    known = sorted(set(begins) & set(ends) & set(loops), key=lambda t: begins[t][0])
    known = known[max(1, len(known) // 8) :]
    if not known:
        return ["no trial was followed all its way"]
    order = sorted(begins.values())
    after = {t: min((b for b, _ in order if b > begins[t][0]), default=None) for t in known}
    parts: dict[str, list[float]] = {
        "driver: ask the sampler, write the study, tell the pool": [
            begins[t][1] - begins[t][0] for t in known
        ],
        "begun until the loop begins: Tune, pool, data, rank": [
            loops[t][0] - begins[t][1] for t in known
        ],
        "the loop": [loops[t][1] - loops[t][0] for t in known],
        "loop ended until the driver hears: rank, pool, Tune": [
            ends[t][0] - loops[t][1] for t in known
        ],
        "driver: write the study, tell the tracker": [ends[t][1] - ends[t][0] for t in known],
        "heard until the next trial is begun: Tune": [
            n - ends[t][1] for t in known if (n := after[t]) is not None and n > ends[t][1]
        ],
    }
    ticks = [ended - began for what, _, began, ended in clocks if what == "tick"]
    lines = ["| station | median | greatest tenth from |", "|---|---|---|"]
    for name, values in parts.items():
        if values:
            high = sorted(values)[int(0.9 * (len(values) - 1))]
            lines.append(
                f"| {name} | {shown(statistics.median(values), 'ms')} | {shown(high, 'ms')} |"
            )
    lines.append(
        f"| rounds of Tune's loop a trial; a tick | {shown(len(ticks) / len(begins))} | "
        f"{shown(sum(ticks) / max(1, len(ticks)), 'ms')} |"
    )
    return lines


# ---- by py-spy


@contextlib.contextmanager
def _sampled(folder: Path, times: Path) -> Iterator[Callable[[], list[str]]]:
    """Sample all processes of the sweep for some seconds, as soon as trials run."""
    profiles: dict[str, Path] = {}
    spy = shutil.which("py-spy")
    thread = threading.Thread(target=_sample, args=(spy, folder, times, profiles), daemon=True)
    if spy:
        thread.start()

    def stacks() -> list[str]:
        if not spy:
            return ["(py-spy is not installed: no stacks)"]
        thread.join(30)
        return [
            line
            for name, file in profiles.items()
            if file.exists()
            for line in summary(name, file.read_text())
        ]

    yield stacks


def _sample(spy: str, folder: Path, times: Path, profiles: dict[str, Path]) -> None:
    import psutil

    give_up = time.monotonic() + 120
    while time.monotonic() < give_up and (
        not times.exists() or len(times.read_text().splitlines()) < 4
    ):
        time.sleep(0.05)
    me = psutil.Process()
    running = []
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            title = "driver" if process.pid == me.pid else " ".join(process.cmdline())
            if title != "driver" and not title.startswith(ROOMS):
                continue
            file = folder / f"stacks-{process.pid}.txt"
            command = [
                spy,
                "record",
                "-p",
                str(process.pid),
                "-d",
                str(int(SECONDS)),
                "-r",
                str(RATE),
                "-f",
                "raw",
                "-o",
                str(file),
            ]
            command += ["--threads", "--nonblocking"]
            running.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            profiles[f"{title[:40]} ({process.pid})"] = file
    for spying in running:
        spying.wait()


def summary(name: str, raw: str, top: int = 8) -> list[str]:
    """Summarize the stacks of a process: how busy each thread was, and which functions were most
    often at the top of and in the stacks.

    Args:
        name: Name of the process.
        raw: Folded stacks of py-spy, one `thread;frame;frame count` on each line.
        top: Number of functions to show.
    """
    threads: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [f for f in stack.split(";") if not f.startswith("process ")]
        if len(frames) < 2 or not count.isdigit():
            continue
        thread, *calls = frames
        threads[thread] += int(count)
        calls = [_short(call) for call in calls]
        own[f"{calls[-1]}"] += int(count)
        for call in set(calls):
            inside[call] += int(count)
    whole = RATE * SECONDS
    roots = 0.9 * max(
        threads.values(), default=0
    )  # A frame that nearly every stack contains gives no information.
    busy = ", ".join(
        f"{thread} {count / whole:.0%}"
        for thread, count in threads.most_common(5)
        if count / whole >= 0.01
    )
    lines = [f"**{name}**: threads at work: {busy or 'none over 1%'}", ""]
    if not busy:
        return lines
    shares = [
        f"{call} {count / whole:.0%}"
        for call, count in own.most_common(top)
        if count / whole >= 0.005
    ]
    lines += ["  last in the stack: " + "; ".join(shares)]
    shares = [
        f"{call} {count / whole:.0%}"
        for call, count in inside.most_common(5 * top)
        if count < roots and count / whole >= 0.01
    ]
    return [*lines, "  anywhere in it: " + "; ".join(shares), ""]


def _short(call: str) -> str:
    """Shorten the path in a frame: `function (/a/b/ray/tune/x.py:12)` becomes `function
    (tune/x.py)`.
    """
    function, _, place = call.partition(" (")
    path = place.rpartition(":")[0] or place.rstrip(")")
    return f"{function} ({'/'.join(path.split(os.sep)[-2:])})"
