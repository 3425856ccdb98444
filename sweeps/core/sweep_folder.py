"""Paths and file names of a sweep's folder.

NAME-DATE-TIME/
├── space.yaml            the space file, as it was when the sweep started
├── origin.json           the folder from which the space file was read, and the options of the sweep (see `core/origin.py`)
├── earlier_trials.json   the trials of earlier sweeps from which the sweep learns, if the space file has `search.from`
├── provenance.json       git commit, package versions and seed, one entry for each start or resume
├── code.diff             the uncommitted changes of the user's code at the start; a resume adds code-2.diff and so on
├── study.journal         the study, unless it is in a database
├── lock                  a file that is locked while a process runs the sweep
├── ray.json              while the sweep runs: the processes of Ray, if the sweep has started Ray
├── stages.json           the trials that wait for workers or have become silent, while the sweep runs
├── commands/             commands to the process that runs the sweep, and its answers (see `controller/commands.py`)
├── functions/            functions and classes that a Python script passed to `sweeps.run`
├── tables/               tables that a Python script passed to `sweeps.run`
├── prepared/             what an export needs of the data: the fitted preprocessors, the test split, and facts such as the classes
├── trials/0007/          one folder for each trial
│   ├── checkpoint_000012/
│   ├── files/            other files of the loop, such as profiler traces
│   ├── logs/rank-0.log   the output of each rank
│   └── mlflow.json       the trial's run in MLflow
├── events.jsonl          the events of the sweep, if the tracker `jsonl` is used
├── tensorboard/          the event files of TensorBoard, if the tracker `tensorboard` is used
├── exports/0007/         the default output of `sweeps export`
├── bundle/               the bundle of the best trial
├── checkpoint/           the checkpoint of the best trial, in place of bundle/ if the trainer has no `load`
├── report.md, report.html
└── result.json           the result, as `--json` prints it
"""

from __future__ import annotations

import datetime
import fnmatch
import os
from pathlib import Path

from sweeps.core.errors import InputError, Problem
from sweeps.core.trial import format_trial_id

SPACE = "space.yaml"
ORIGIN = "origin.json"
PROVENANCE = "provenance.json"
EARLIER_TRIALS = "earlier_trials.json"
JOURNAL = "study.journal"
LOCK = "lock"
RAY = "ray.json"
STAGES = "stages.json"
COMMANDS = "commands"
RESULT = "result.json"
# In a bundle.
MANIFEST = "manifest.json"
# In a trial's folder.
MLFLOW_RUN = "mlflow.json"
FILES = "files"
CHECKPOINTS = "checkpoint_*"  # a glob pattern
ROW_RUNS = "row_runs"
# Folders that a sweep deletes when it ends. Ray Tune and Ray Train write data for their own restores into the first two, which sweeps does
# not use. In the third, trials that train on more and more rows keep their latest checkpoint.
SCRATCH = ("tune", "gangs", ROW_RUNS)
# Everything that sweeps writes into a sweep's folder, as glob patterns for names. `sweeps rm` deletes nothing else.
OWN = (
    *(
        SPACE,
        ORIGIN,
        EARLIER_TRIALS,
        PROVENANCE,
        "code.diff",
        "code-*.diff",
        JOURNAL,
        LOCK,
        RAY,
        STAGES,
        RESULT,
    ),
    *("sweep.log", "events.jsonl"),
    *(
        "tensorboard",
        "commands",
        "trials",
        "functions",
        "tables",
        "prepared",
        "exports",
        "bundle",
        "checkpoint",
        "report.md",
        "report.html",
    ),
    *("driver.json", "*.damaged-*", ".*.part", *SCRATCH),
)
# The end of a sweep folder's name, after the sweep's name, as a regular expression.
STAMP = r"-\d{8}-\d{6}(-\d+)?"


class SweepFolder:
    """The paths in a sweep's folder. The class computes paths, but neither reads nor creates files.

    Args:
        path: The sweep's folder.

    Attributes:
        path: The sweep's folder.
        space: The space file, as it was when the sweep started.
        origin: The file that records the folder from which the space file was read, and the options of the sweep.
        earlier_trials: The trials of earlier sweeps from which the sweep learns, if the space file has `search.from`.
        journal: The file of the study, unless the study is in a database.
        lock: The file that is locked while a process runs the sweep.
        ray: The file that lists the processes of Ray, if the sweep has started Ray.
        stages: The file that lists the trials that wait for workers or have become silent.
        commands: Folder of the commands to the process that runs the sweep, and of its answers.
        result: The sweep's result, as `--json` prints it.
        bundle: Folder of the best trial's bundle.
        checkpoint: Folder of the best trial's checkpoint, in place of a bundle if the trainer has no `load`.
        prepared: Folder with what an export needs of the data: the fitted preprocessors, the test split, and facts such as the classes.
        tables: Folder with the tables that a Python script passed to `sweeps.run`.
        exports: The folder into which `sweeps export` writes by default.
        events: The file that the tracker `jsonl` writes.
        tensorboard: The folder that the tracker `tensorboard` writes, with a folder for each trial.
        trials: The folder that contains one folder for each trial.
    """

    def __init__(self, path: Path):
        self.path = path
        self.space = path / SPACE
        self.origin = path / ORIGIN
        self.earlier_trials = path / EARLIER_TRIALS
        self.journal = path / JOURNAL
        self.lock = path / LOCK
        self.ray = path / RAY
        self.stages = path / STAGES
        self.commands = path / COMMANDS
        self.result = path / RESULT
        self.bundle = path / "bundle"
        self.checkpoint = path / "checkpoint"
        self.prepared = path / "prepared"
        self.tables = path / "tables"
        self.functions = path / "functions"
        self.exports = path / "exports"
        self.events = path / "events.jsonl"
        self.tensorboard = path / "tensorboard"
        self.trials = path / "trials"

    def trial(self, trial: str | int) -> Path:
        """Return the folder of a trial, given its id or its number."""
        return self.trials / (trial if isinstance(trial, str) else format_trial_id(trial))

    def logs(self, trial: str | int) -> Path:
        """Return the folder of a trial's logs, one file for each rank. `trial` is the trial's id or its number."""
        return self.trial(trial) / "logs"

    def report(self, suffix: str) -> Path:
        """Return the path of `report.md` or `report.html`. `suffix` is `md` or `html`."""
        return self.path / f"report.{suffix}"


def create_sweep_folder(root: Path, name: str, started: float) -> Path:
    """Make the folder of a new sweep, such as `ROOT/NAME-20260102-120000`. If this folder exists already, append a number to the name.

    Args:
        root: The folder of all sweeps; it is made if it does not exist.
        name: The sweep's name.
        started: Time at which the sweep started, in seconds since the epoch.

    Raises:
        InputError: The folder cannot be made.
    """
    stamp = datetime.datetime.fromtimestamp(started).strftime("%Y%m%d-%H%M%S")
    for tail in ("", *(f"-{i}" for i in range(2, 1000))):
        folder = root / f"{name}-{stamp}{tail}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as e:
            raise InputError(
                Problem("--dir", f"sweeps cannot create a folder in {root}: {e.strerror}")
            ) from e
        return folder
    raise InputError(
        Problem(
            "--dir",
            f"{root}: all names that sweeps tried for the new sweep's folder are in use; try again in a second",
        )
    )


def is_own(name: str) -> bool:
    """Return whether sweeps writes a file or folder of this name into a sweep's folder."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in OWN)


def refuse_links(folder: Path) -> None:
    """Raise an error if files or folders of a sweep are symbolic links, which may lead out of the sweep's folder.

    Call this function before a command deletes or writes anything in the folder.

    Raises:
        InputError: The folder of a trial, a checkpoint, or another file or folder of the sweep is a link.
    """
    sweep = SweepFolder(folder)
    own = [
        sweep.trials,
        sweep.commands,
        sweep.prepared,
        sweep.tables,
        sweep.functions,
        sweep.bundle,
        sweep.checkpoint,
        sweep.exports,
        sweep.events,
        sweep.tensorboard,
    ]
    trials = [] if sweep.trials.is_symlink() else list(sweep.trials.glob("*"))
    inside = [
        path
        for trial in trials
        if not trial.is_symlink()
        for path in (trial / "logs", *trial.glob(CHECKPOINTS))
    ]
    for path in (*own, *trials, *inside):
        if path.is_symlink():
            rule = "is a link, but sweeps reads and writes only files inside the sweep's folder; replace the link with the files"
            raise InputError(Problem(str(path), rule))


def refuse_special_files(folder: Path) -> None:
    """Raise an error if a folder holds anything but regular files and folders.

    Reading a pipe would block, and a symbolic link may lead out of the folder.

    Raises:
        InputError: The folder holds a link, a pipe, a socket or a device.
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                kind = "a link" if path.is_symlink() else "not a regular file"
                raise InputError(
                    Problem(
                        str(path),
                        f"is {kind}; sweeps reads only regular files inside the sweep's folder",
                    )
                )
