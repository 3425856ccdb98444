"""Paths and file names of a sweep's folder.

NAME-DATE-TIME/
├── space.yaml            the space file, as it was when the sweep started
├── origin.json           the folder of the space file, and the options of the sweep
├── earlier_trials.json   the trials of the sweeps in `search.from`
├── provenance.json       git commit, package versions and seed of each start or resume
├── code.diff             uncommitted changes at the start; a resume adds code-2.diff
├── study.journal         the study, unless it is in a database
├── lock                  a file that is locked while a process runs the sweep
├── ray.json              while the sweep runs: the processes of Ray that it has started
├── stages.json           while the sweep runs: trials that wait or have become silent
├── commands/             commands to the process that runs the sweep, and its answers
├── functions/            functions and classes that a Python script passed to `sweeps.run`
├── tables/               tables that a Python script passed to `sweeps.run`
├── prepared/             fitted preprocessors, test split and facts that an export needs
├── trials/0007/          one folder for each trial
│   ├── checkpoint_000012/
│   ├── files/            other files of the loop, such as profiler traces
│   ├── logs/rank-0.log   the output of each rank
│   ├── predictions.npz   the predictions of the model for valid, of the best trials
│   └── mlflow.json       the trial's run in MLflow
├── events.jsonl          the events of the sweep, from the tracker `jsonl`
├── tensorboard/          the event files of the tracker `tensorboard`
├── exports/0007/         the default output of `sweeps export`
├── bundle/               the bundle of the best trial
├── checkpoint/           in place of bundle/ if the trainer has no `load`
├── report.md, report.html
└── result.json           the result, as `--json` prints it
"""

import datetime
import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path

from sweeps.core.errors import InputError
from sweeps.core.trial import format_trial_id

from .regular_files import FILE, FOLDER, kind_of, refuse_other_kind

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
PREDICTIONS = "predictions.npz"
LOOP_RUNS = "loop_runs"
# Folders that a sweep deletes when it ends. Ray Tune and Ray Train write data for their own
# restores into the first two, which sweeps does not use. In the third, trials that run their loop
# several times keep the latest checkpoints of these runs.
SCRATCH = ("tune", "gangs", LOOP_RUNS)
# The files and folders that sweeps writes into a sweep's folder, as glob patterns for names.
OWN_FILES = (
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
    "sweep.log",
    "events.jsonl",
    "report.md",
    "report.html",
    "driver.json",
)
OWN_FOLDERS = (
    "tensorboard",
    COMMANDS,
    "trials",
    "functions",
    "tables",
    "prepared",
    "exports",
    "bundle",
    "checkpoint",
    *SCRATCH,
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
        origin: The file that records the folder from which the space file was read, and the options
            of the sweep.
        earlier_trials: The trials of earlier sweeps from which the sweep learns, if the space file
            has `search.from`.
        journal: The file of the study, unless the study is in a database.
        lock: The file that is locked while a process runs the sweep.
        ray: The file that lists the processes of Ray, if the sweep has started Ray.
        stages: The file that lists the trials that wait for workers or have become silent.
        commands: Folder of the commands to the process that runs the sweep, and of its answers.
        result: The sweep's result, as `--json` prints it.
        bundle: Folder of the best trial's bundle.
        checkpoint: Folder of the best trial's checkpoint, in place of a bundle if the trainer has
            no `load`.
        prepared: Folder with what an export needs of the data: the fitted preprocessors, the test
            split, and facts such as the classes.
        tables: Folder with the tables that a Python script passed to `sweeps.run`.
        functions: Folder with the functions and classes that a Python script passed to
            `sweeps.run`.
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
        """Return the folder of a trial's logs, one file for each rank.

        `trial` is the trial's id or its number.
        """
        return self.trial(trial) / "logs"

    def report(self, suffix: str) -> Path:
        """Return the path of `report.md` or `report.html`. `suffix` is `md` or `html`."""
        return self.path / f"report.{suffix}"


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is a sweep's folder, which has the file `origin.json`.

    Return False for a folder that cannot be read.
    """
    return os.path.isfile(folder / ORIGIN)


def create_sweep_folder(root: Path, name: str, started: float) -> Path:
    """Make the folder of a new sweep, such as `ROOT/NAME-20260102-120000`.

    If this folder exists already, append a number to the name.

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
                "--dir", f"sweeps cannot create a folder in {root}: {e.strerror}"
            ) from e
        return folder
    raise InputError(
        "--dir",
        f"{root}: all names that sweeps tried for the new sweep's folder are in use; try again in "
        "a second",
    )


def refuse_other_entries(folder: Path) -> None:
    """Raise an error if a place in a sweep's folder holds anything but what sweeps writes there.

    A link may lead out of the folder, and a pipe blocks. Call this function before a command writes
    or deletes anything in the folder, or passes its files to a library. Checkpoints are looked at
    only from outside; see `refuse_special_files`.

    Raises:
        UnreadableFile: A file or a folder of the sweep is a link, a pipe, or another kind than
            sweeps writes.
    """
    sweep = SweepFolder(folder)
    _refuse_kinds(folder, files=OWN_FILES, folders=OWN_FOLDERS)
    _refuse_kinds(sweep.trials, folders=("[0-9]*",))
    for trial in sweep.trials.glob("[0-9]*"):
        _refuse_kinds(trial, files=(MLFLOW_RUN, PREDICTIONS), folders=("logs", FILES, CHECKPOINTS))
        _refuse_kinds(trial / "logs", files=("rank-*.log",))
    # `prepared` also has a folder for each fitted chain. The name of such a folder has no dot.
    _refuse_kinds(sweep.prepared, files=("[!.]*.*",))
    for tree in (sweep.tables, sweep.functions):
        _refuse_kinds(tree, files=("*",))
    for tree in (sweep.prepared, sweep.tensorboard):
        refuse_special_files(tree)


def _refuse_kinds(folder: Path, files: Sequence[str] = (), folders: Sequence[str] = ()) -> None:
    """Raise an error if an entry of a folder has another kind than sweeps writes.

    Entries whose names match no pattern are ignored.

    Args:
        folder: The folder to check; it need not exist.
        files: Glob patterns for the names of regular files.
        folders: Glob patterns for the names of folders.
    """
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        for wanted, patterns in ((FILE, files), (FOLDER, folders)):
            if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns):
                refuse_other_kind(path, wanted)


def refuse_special_files(folder: Path) -> None:
    """Raise an error if a folder holds anything but regular files and folders.

    Reading a pipe would block, and a symbolic link may lead out of the folder.

    Raises:
        UnreadableFile: The folder holds a link, a pipe, a socket or a device.
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if kind_of(path) != FOLDER:
                refuse_other_kind(path)
