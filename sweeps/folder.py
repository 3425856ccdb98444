"""A sweep's folder: made anew for a sweep, and enough to take the sweep up again."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

from sweeps import space as space_file
from sweeps.errors import InputError, Problem
from sweeps.space import Space

# Where the space file lay, what was overridden, and what `ls` tells of a sweep without reading its study.
ORIGIN = "origin.json"
# What `--json` prints, at the end.
RESULT = "result.json"


def new_folder(root: Path, name: str, began: float) -> Path:
    """Make the folder of a new sweep: ROOT/NAME-DATE-TIME, with a count where that exists already."""
    stamp = datetime.datetime.fromtimestamp(began).strftime("%Y%m%d-%H%M%S")
    for tail in ("", *(f"-{i}" for i in range(2, 1000))):
        folder = root / f"{name}-{stamp}{tail}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as e:
            raise InputError(Problem("--dir", f"{root}: cannot make a folder here: {e.strerror}")) from e
        return folder
    raise InputError(Problem("--dir", f"{root}: no free name for a new sweep"))


def roots_of(space: Space) -> tuple[Path, ...]:
    """Where the user's modules are found: beside the space file first, then where the command was typed."""
    return tuple(dict.fromkeys((space.data.base.resolve(), Path.cwd())))


def save_space(folder: Path, space: Space, began: float) -> None:
    """Keep the file, where it was and what was overridden, so that the sweep can be taken up from its folder alone."""
    (folder / "space.yaml").write_text(space.text)
    origin = {"base": str(space.data.base), "cwd": str(Path.cwd()), "overrides": list(space.overrides), "began": round(began, 3)}
    origin |= {"metric": space.objective.metric, "max_trials": space.limits.max_trials}
    (folder / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n")


def saved_space(folder: Path) -> tuple[Space, tuple[Path, ...]]:
    """The space of a sweep's folder, with its paths relative to where the file was, and the folders of the user's modules.

    Raises:
        InputError: the folder is not a sweep's.
    """
    try:
        origin = json.loads((folder / ORIGIN).read_text())
        overrides, base, cwd = tuple(origin["overrides"]), Path(origin["base"]), Path(origin["cwd"])
    except (OSError, ValueError, KeyError) as e:
        raise InputError(Problem(str(folder), f"is not a sweep's folder: no readable origin.json in it ({e})")) from e
    for root in (cwd, base):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    return space_file.load(folder / "space.yaml", overrides, base=base), (base, cwd)
