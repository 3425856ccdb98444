"""Save the space file in a sweep's folder, and load it again to resume or inspect the sweep."""

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.file_format import FORMAT
from sweeps.core.files.folder_lock import is_driven
from sweeps.core.files.origin import read_origin, refuse_other_format
from sweeps.core.files.regular_files import refuse_other_kind
from sweeps.core.files.result_file import read_result
from sweeps.core.files.sweep_folder import MANIFEST, SweepFolder
from sweeps.core.plugins import references
from sweeps.core.text.shell_text import shell_command, shell_quoted
from sweeps.space.model.space_model import Space
from sweeps.space.parse.load_space import Recorded, load
from sweeps.space.sections.data_models import Split
from sweeps.space.sections.trainer_spec import TrainerSpec

from .passed_functions import checked_copy, save_module
from .table_overrides import table_files, table_overrides


def roots_of(space: Space) -> tuple[Path, ...]:
    """Return the folders to search for the user's modules.

    They are the space file's folder, the working directory, and the folder of passed functions.
    """
    folders = [space.data.base.resolve(), Path.cwd()]
    if space.functions is not None:
        folders.append(space.functions)
    return tuple(dict.fromkeys(folders))


def save_space(
    folder: Path, space: Space, began: float, **other_keys: str | int | list[str] | None
) -> None:
    """Save the space file, its original place and the overrides in the sweep's folder.

    The sweep can be resumed from this folder alone.

    Args:
        folder: The sweep's folder.
        space: The sweep's space.
        began: Time of the sweep's start, in seconds since the epoch.
        other_keys: Further keys for `origin.json` that a resume needs, with their values. No value
            may contain a password.
    """
    write_text(SweepFolder(folder).space, space.text)
    if space.functions is not None:
        save_module(space.functions, SweepFolder(folder).functions)
    origin: dict[str, Any] = {
        "format": FORMAT,
        "name": space.name,
        "base": str(space.data.base),
        "cwd": str(Path.cwd()),
        "began": round(began, 3),
        # a resume must not choose again for `auto`
        "algorithm": space.search.algorithm,
        # a resume must have the same space, even if the environment has changed
        "variables": space.variables,
    }
    write_text(
        SweepFolder(folder).origin,
        json.dumps(origin | other_keys | _resume_keys(space), indent=2) + "\n",
    )


def save_limits(folder: Path, space: Space) -> None:
    """Save the overrides and the limits of a resumed sweep in `origin.json`."""
    write_text(
        SweepFolder(folder).origin,
        json.dumps(read_origin(folder) | _resume_keys(space), indent=2) + "\n",
    )


def _resume_keys(space: Space) -> dict[str, Any]:
    """Return the keys of `origin.json` that a resume writes again: overrides, limits, metric."""
    keys: dict[str, Any] = {
        "overrides": list(space.overrides),
        "metric": space.objective.metric,
        "max_trials": space.limits.max_trials,
    }
    if space.repeats.count > 1:
        keys["repeats"] = space.repeats.count
    return keys


def saved_space(folder: Path) -> tuple[Space, tuple[Path, ...]]:
    """Load the space file that is saved in a sweep's folder, and extend `sys.path`.

    The folders of the user's modules are prepended to `sys.path`. Relative paths in the saved file
    refer to the folder of the original file.

    Args:
        folder: The sweep's folder.

    Returns:
        The space, and the folders of the user's modules.

    Raises:
        InputError: The folder is not a sweep's folder, or its space file is invalid.
    """
    origin = read_origin(folder)
    base = Path(origin["base"])
    cwd = Path(origin["cwd"])
    for root in (cwd, base):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    return _load(folder), (base, cwd)


def runnable_space(folder: Path, trust: bool = False) -> tuple[Space, tuple[Path, ...]]:
    """Load a sweep's space file as `saved_space` does, with the functions that a script passed.

    Call this function before the user's code runs. The functions are checked, and copied to a
    folder from which they can be imported.

    Args:
        folder: The sweep's folder.
        trust: True to accept functions that this user's key has not signed.

    Raises:
        InputError: See `saved_space`; or Python has another version than the Python that stored the
            functions.
        UntrustedFile: The functions are not signed with this user's key.
    """
    space, roots = saved_space(folder)
    if space.functions is None:
        return space, roots
    functions = checked_copy(space.functions, trust)
    sys.path.insert(0, str(functions))
    return replace(space, functions=functions), (*roots, functions)


def recorded_space(folder: Path) -> Space:
    """Load the space file that is saved in a sweep's folder.

    This function runs no user code, and does not change `sys.path`.

    The user's modules may be missing, for example on another machine.

    Raises:
        InputError: The folder is not a sweep's folder, or its space file is invalid.
    """
    with references.absent_modules_allowed():
        return _load(folder)


def _load(folder: Path, new_overrides: tuple[str, ...] = ()) -> Space:
    """Load the space file that is saved in a sweep's folder.

    The overrides of the sweep are applied, and then `new_overrides`. Relative paths in the file
    refer to the folder of the original file.

    The functions that a script passed stay in the sweep's folder. They are only looked at.

    The space gets its name from `origin.json`. Without the key `name`, a space is named after its
    file, and the saved copy has another file name than the original.
    """
    origin = read_origin(folder)
    saved = SweepFolder(folder)
    refuse_other_kind(saved.space)
    recorded = Recorded(
        algorithm=origin["algorithm"],
        variables=origin["variables"],
        functions=saved.functions if saved.functions.is_dir() else None,
    )
    overrides = (*origin["overrides"], *new_overrides)
    tables = table_overrides(saved.tables)
    space = load(saved.space, (*tables, *overrides), origin["base"], recorded)
    return replace(space, name=origin["name"], overrides=overrides)


def with_saved_tables(space: Space, folder: Path) -> Space:
    """Return a space that reads the tables that a script passed from the sweep's folder.

    Args:
        space: The space.
        folder: The sweep's folder, which has the tables.
    """
    data = space.data
    places = dict(space.places)
    for file in table_files(SweepFolder(folder).tables):
        path = str(file.absolute())
        key = f"data.{file.stem}"
        places[key] = key  # messages name the key, because the user has not written the file
        if file.stem == "train":
            data = replace(data, train=path, args={})
        else:
            changed: dict[str, Any] = {file.stem: Split("path", path=path)}
            data = replace(data, **changed)
    return replace(space, data=data, places=places, tables={})


# How a user's code saves a checkpoint, and the page that explains it, by the name of the trainer.
# The name of a user's own loop is None.
_SAVE = {
    None: ("`ray.train.report(metrics, checkpoint=...)` in the loop", "own-loop.md"),
    "command": ("`sweeps.report(metrics, checkpoint=FOLDER)` in the script", "command.md"),
    "trainable": ("`save_checkpoint` in the class", "trainers.md"),
}


def how_to_get_a_bundle(trainer: TrainerSpec) -> str | None:
    """Return what the user's code needs for a bundle: a checkpoint and `load`.

    Return None if a built-in trainer saves the checkpoints.
    """
    if trainer.name not in _SAVE:
        return None
    save, page = _SAVE[trainer.name]
    load = ", and `load` in the section `trainer`" if trainer.load is None else ""
    return f"a bundle needs a checkpoint, from {save}{load}; see docs/how-to/{page}"


def bundle_of(folder: Path) -> Path:
    """Return the folder of the bundle that a sweep wrote for its winner.

    This function runs no user code.

    Args:
        folder: The sweep's folder.

    Raises:
        InputError: The folder has another format than this version reads, or the sweep has no
            bundle. The message says why, and what the user can do.
    """
    refuse_other_format(folder)
    bundle = SweepFolder(folder).bundle
    if bundle.is_dir():
        return bundle
    raise InputError(str(folder), _why_no_bundle(folder))


def _why_no_bundle(folder: Path) -> str:
    """Return why a sweep has no bundle, and what the user can do."""
    export = f"{shell_command('sweeps')} export {shell_quoted(folder)}"
    exported = sorted(
        manifest.parent for manifest in SweepFolder(folder).exports.glob(f"*/{MANIFEST}")
    )
    result = read_result(folder)
    trainers: list[TrainerSpec] = []
    with contextlib.suppress(InputError):  # the user's modules may be missing
        trainers = [*_load(folder).trainers.values()]
    if is_driven(folder):
        why = (
            "the sweep is running, and writes its bundle when it ends; wait until then, or stop "
            "the sweep with Ctrl-C"
        )
    elif trainers and all(trainer.load is None for trainer in trainers):
        why = (
            "the sweep has no bundle, because its trainer has no `load`; "
            f"{how_to_get_a_bundle(trainers[0])}"
        )
    elif exported:
        why = (
            f"the sweep has no bundle; name one of its exports, such as {shell_quoted(exported[0])}"
        )
    elif result is not None and result.front:
        why = (
            "the sweep has several objectives and no single winner; choose a trial with "
            f"`{export} --trial ID`"
        )
    elif result is not None and result.outcome == "failed":
        show = f"{shell_command('sweeps')} show {shell_quoted(folder)}"
        why = (
            f"the sweep failed and has no winner; `{show}` says why, and `{export} --trial ID` "
            "exports a trial that saved a checkpoint"
        )
    else:
        how = (
            "ended without a bundle"
            if result is not None
            else "was interrupted or killed before it wrote its bundle"
        )
        why = f"the sweep {how}; `{export}` writes a bundle and prints the bundle's folder"
    return why


def resumed_space(
    folder: Path, overrides: tuple[str, ...], add_trials: int, trust: bool = False
) -> Space:
    """Return the space of a resumed sweep, with its new limits.

    Args:
        folder: The sweep's folder.
        overrides: Overrides of `limits`, such as `limits.timeout=2h`.
        add_trials: Number to add to `limits.max_trials`.
        trust: See `runnable_space`.

    Raises:
        InputError: An override changes something other than a limit, or the number of trials of a
            population changes.
    """
    space, _ = runnable_space(folder, trust)
    rule = "only `limits` can change on resume, such as --set limits.timeout=2h"
    problems = [
        Problem(f"--set {override}", rule)
        for override in overrides
        if override.partition("=")[0].strip().split(".")[0] != "limits"
    ]
    if problems:
        raise InputError(problems)
    population_rule = (
        f"the population of {space.scheduler.name} cannot change after the sweep has begun; this "
        f"population has {space.scheduler.population} members"
    )
    if add_trials and space.scheduler.population is not None:
        raise InputError("--add-trials", f"{population_rule}, got {add_trials} more")
    if add_trials:
        limits = _load(folder, overrides).limits
        overrides = (*overrides, f"limits.max_trials={limits.max_trials + add_trials}")
    if not overrides:
        return space
    changed = _load(folder, overrides)
    if changed.scheduler != space.scheduler:
        text = f"{population_rule}, got {changed.limits.max_trials}"
        raise InputError("limits.max_trials", text)
    return replace(changed, functions=space.functions)
