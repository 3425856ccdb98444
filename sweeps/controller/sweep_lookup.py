"""What is there to see of sweeps that ran or run: for `ls`, `show` and `logs`. Reads alone, also while a driver writes."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.core.command_hints import repair_command
from sweeps.core.errors import DamagedStudy, InputError, Problem, unknown_trial
from sweeps.core.json_files import is_text, read_json_object
from sweeps.core.origin import origin_error, valid_origin_keys
from sweeps.core.result import read_result, relocate, result_file_error, to_json_value
from sweeps.core.suggestions import did_you_mean
from sweeps.core.sweep_folder import ORIGIN, STAMP, SweepFolder
from sweeps.space import saved_space

LOOK_EVERY = 0.3


@dataclass(frozen=True)
class Sweep:
    """A sweep in its folder.

    Attributes:
        name, folder: the folder's name, and the folder.
        state: "running", "finished", "failed", "interrupted", or "killed" where its process was lost.
        trials: ended and begun trials by state, `completed`, `pruned`, `failed`, `running` or `interrupted`; empty before the first.
            In a sweep that runs, trials that do not train yet count under their stage, such as `waiting`, and not as `running`.
        total: trials that there will be, see `repeats.known_total`; None where it is not known.
        best: the best trial's id and value; None before there is one.
        metric: the objective's name.
        began: seconds since the epoch.
        result: what `--json` printed at the end; None before.
        algorithm: of the search; None if the folder does not say.
        stages: of a sweep that runs, the trials that do not train yet or have not reported for long: their ids, and each one's stage, such
            as `waiting for workers` or `silent: rank 1 has not reported for 310 s; ...`.
        problems: what of the folder is damaged, a line each.
    """

    name: str
    folder: Path
    state: str
    trials: dict[str, int]
    total: int | None
    best: tuple[str, float] | None
    metric: str | None
    began: float
    result: dict[str, Any] | None
    algorithm: str | None = None
    stages: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def state_of(self, trial: Any) -> str:
        """The word for the state of a trial, of a `search.record.TrialRecord`: its stage where it does not train yet."""
        state = trial_state(trial, self.state == "running")
        return _word(self.stages.get(trial.id, "running")) if state == "RUNNING" else state

    def to_json(self) -> dict[str, Any]:
        """What `ls --json` prints of it."""
        best = None if self.best is None else {"trial": self.best[0], "value": self.best[1]}
        began = datetime.datetime.fromtimestamp(self.began).astimezone().isoformat(timespec="seconds")
        told: dict[str, Any] = {"sweep": self.name, "dir": str(self.folder), "state": self.state, "began": began, "trials": self.trials}
        told |= {"total": self.total, "metric": self.metric, "best": best, "algorithm": self.algorithm}
        return to_json_value(told | ({"problems": [str(problem) for problem in self.problems]} if self.problems else {}))


def trial_state(trial: Any, driven: bool) -> str:
    """The state of a trial, of a `search.record.TrialRecord`: COMPLETE, PRUNED, FAIL, RUNNING, INTERRUPTED or GIVEN."""
    if trial.result.given:
        return "GIVEN"
    state = trial.result.state.name
    return "INTERRUPTED" if state == "RUNNING" and not driven else state


def state_of(driven: bool, result: dict[str, Any] | None) -> str:
    """A sweep's state: from whether a process drives it, and from the result it left."""
    if driven:
        return "running"
    if result is None:
        return "killed"
    if result.get("reason") == "interrupted":
        return "interrupted"
    return "finished" if result.get("best") or result.get("front") else "failed"


def sweeps_in(root: Path) -> list[Sweep]:
    """Every sweep under a root, the newest first.

    Raises:
        InputError: there is no such folder.
    """
    if not root.is_dir():
        raise InputError(Problem("--dir", f"{root}: no such folder; a sweep makes it"))
    found = [look_at(folder) for folder in sorted(root.iterdir()) if SweepFolder(folder).origin.is_file()]
    return sorted(found, key=lambda s: s.began, reverse=True)


def look_at(folder: Path) -> Sweep:
    """How a sweep stands, from its folder."""
    from sweeps.core.folder_lock import is_driven

    origin, result, problems = valid_origin_keys(folder), read_result(folder), [*_damaged(folder)]
    running = is_driven(folder)
    metric, trials, total = origin.get("metric"), (result or {}).get("trials"), origin.get("max_trials")
    best, study, over = None, None, result is not None and not running
    stages: dict[str, str] = {}
    if not over or origin.get("repeats", 1) > 1:
        from sweeps.study import record

        try:
            study = record.read(folder)
        except DamagedStudy as e:
            problems += e.problems
        except InputError:  # its database is away, which is no reason to show nothing of the others
            pass
    if study is not None and total is not None:
        total = study.total(total)
    if result is not None:
        result = relocate(result, folder)
    if over:
        if result and result.get("best") and result["best"]["value"] is not None:
            best = (result["best"]["trial"], result["best"]["value"])
    elif study is not None:
        counts = Counter(t.result.state.name for t in study.ran)
        trials = {word: counts[state] for word, state in WORDS.items()}
        if running:  # the first word of a stage says it: `waiting for workers`
            begun, told = {t.id for t in study.ran if t.result.state.name == "RUNNING"}, read_json_object(SweepFolder(folder).stages) or {}
            stages = {trial: stage for trial, stage in told.items() if trial in begun and is_text(stage) and stage.strip()}
        trials["running" if running else "interrupted"] = counts["RUNNING"] - len(stages)
        trials |= Counter(_word(stage) for stage in stages.values())
        if (found := study.best) is not None:
            value = study.configurations.results()[found.number if found.origin is None else found.origin].value
            best = None if value is None else (found.id, value)
    return Sweep(
        name=folder.name,
        folder=folder,
        state=state_of(running, result),
        trials=trials or {},
        total=total,
        best=best,
        metric=metric,
        began=origin.get("began") or SweepFolder(folder).origin.stat().st_mtime,
        result=result,
        algorithm=origin.get("algorithm"),
        stages=stages,
        problems=tuple(problems),
    )


def _word(stage: str) -> str:
    """The first word of a stage, which says how a trial stands: `waiting for workers`, `silent: rank 1 ...`."""
    return stage.split()[0].rstrip(":")


def _damaged(folder: Path) -> Iterator[Problem]:
    """What is wrong with the files that tell of a sweep beside its study."""
    origin = read_json_object(SweepFolder(folder).origin)
    if why := "holds no JSON object" if origin is None else origin_error(origin):
        yield Problem(str(SweepFolder(folder).origin), f"{why}; copy the file from a backup, or mend it by hand")
    if why := result_file_error(SweepFolder(folder).result):
        yield Problem(str(SweepFolder(folder).result), f"{why}; `{repair_command(folder)}` puts the file aside")


WORDS = {"completed": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}


def find(sweep: str | Path, root: Path) -> Path:
    """The folder of the sweep that a user names: by its path, by its name under the root, by the beginning of that, or `latest`.

    A name without date and time means the newest sweep of that name.

    Raises:
        InputError: no such sweep, or several.
    """
    path, name = Path(sweep), str(sweep).rstrip("/")
    _refuse_long(name)
    if SweepFolder(path).origin.is_file():
        return path.resolve()
    there = sorted(f.parent.name for f in root.glob(f"*/{ORIGIN}")) if root.is_dir() else []
    if name == "latest" and there:
        return _newest(root / n for n in there)
    named = re.compile(re.escape(name) + STAMP)
    if of_that_name := [n for n in there if n == name] or [n for n in there if named.fullmatch(n)]:
        return _newest(root / n for n in of_that_name)
    matching = [n for n in there if n.startswith(name)]
    if len(matching) == 1:
        return (root / matching[0]).resolve()
    if path.is_dir() and not matching:
        raise InputError(Problem(str(sweep), "is not a sweep's folder: no origin.json in it"))
    if matching:
        raise InputError(Problem(str(sweep), f"several sweeps in {root} begin so: {', '.join(matching[:5])}"))
    hint = did_you_mean(name, there[-5:]) if there else "there are none"
    raise InputError(Problem(str(sweep), f"no such sweep, neither as a folder nor in {root}; {hint}"))


def _refuse_long(name: str) -> None:
    """Refuse what no file system takes for a path."""
    if len(os.fsencode(name)) > 4095 or any(len(os.fsencode(part)) > 255 for part in name.split("/")):
        raise InputError(Problem(f"{name[:40]}...", f"{len(name):,} characters are more than a path can have"))


def _newest(folders: Iterable[Path]) -> Path:
    """The sweep's folder that began last."""
    return max(folders, key=lambda folder: valid_origin_keys(folder).get("began") or 0).resolve()


def bundle_of(bundle: str | Path, root: Path) -> Path:
    """Return the folder of the bundle that a user names: by its path, or by its sweep, see `find`. It may be no bundle, or a broken one.

    Raises:
        InputError: no such sweep, or the sweep has no bundle.
    """
    path = Path(bundle)
    _refuse_long(str(bundle))
    if SweepFolder(path).origin.is_file():
        return saved_space.bundle_of(path)
    if path.exists() or len(path.parts) > 1:  # whoever loads it says what is wrong with it
        return path
    try:
        folder = find(bundle, root)
    except InputError as e:
        raise InputError(Problem(p.place, p.text.replace("no such sweep", "no such bundle or sweep", 1)) for p in e.problems) from None
    return saved_space.bundle_of(folder)


def trial_of(study: Any, trial_id: str) -> Any:
    """The trial a user names, of a `search.record.Record`.

    Raises:
        InputError: no such trial.
    """
    known = {t.id: t for t in study.trials} if study is not None else {}
    name = trial_id.zfill(4)
    if name == "best".zfill(4) and study is not None and study.best is not None:
        return study.best
    if name not in known:
        raise unknown_trial("trial", trial_id, known)
    return known[name]


def _logs_in(logs: Path) -> list[Path]:
    """Return the log files of a trial by rank. A link or a pipe, which a stranger's folder may hold, is none of them."""
    if logs.is_symlink() or logs.parent.is_symlink() or logs.parent.parent.is_symlink():
        return []
    found = [path for path in logs.glob("rank-*.log") if re.fullmatch(r"rank-\d{1,9}", path.stem)]
    return sorted((path for path in found if path.is_file() and not path.is_symlink()), key=lambda path: int(path.stem.partition("-")[2]))


def log_lines(folder: Path, trial_id: str, rank: int | None, follow: bool) -> Iterator[str]:
    """The lines of a trial's logs, rank by rank; where there are several, each line begins with its rank.

    Args:
        folder: the sweep's.
        trial_id: of a trial on record.
        rank: this one alone.
        follow: wait for more while the trial runs.

    Raises:
        InputError: no such trial or rank.
    """
    from sweeps.core.folder_lock import is_driven
    from sweeps.core.trial import State
    from sweeps.study import record

    trial = trial_of(record.read(folder), trial_id)
    logs = SweepFolder(folder).logs(trial.id)
    read: dict[Path, int] = {}
    while True:
        ended = not follow or not is_driven(folder) or trial_of(record.read(folder), trial.id).result.state is not State.RUNNING
        files = _logs_in(logs)
        wanted = [f for f in files if rank is None or f.stem == f"rank-{rank}"]
        if not wanted and ended:
            what = f"no rank {rank}; there are 0 to {len(files) - 1}" if files else "has no log: it has not started"
            raise InputError(Problem("--rank" if files else trial.id, what))
        for file in wanted:
            with file.open("rb") as opened:
                start = opened.seek(min(read.get(file, 0), opened.seek(0, 2)))  # its middle may have been cut out meanwhile
                new = opened.read()
            whole = len(new) if ended else new.rfind(b"\n") + 1
            read[file] = start + whole
            prefix = f"{file.stem} | " if len(files) > 1 and rank is None else ""
            for line in new[:whole].decode(errors="replace").splitlines():
                yield prefix + line
        if ended:
            return
        time.sleep(LOOK_EVERY)
