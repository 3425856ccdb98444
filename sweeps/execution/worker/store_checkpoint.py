"""Store a checkpoint that a loop has reported."""

import json
from pathlib import Path
from typing import Any

import pyarrow.fs
import ray.train

from sweeps.core.files import stores
from sweeps.core.files.checkpoint_files import upload_checkpoint
from sweeps.core.loop_context import CHECKPOINT_NOTE
from sweeps.core.trial import Checkpoint


def store_checkpoint(checkpoint: ray.train.Checkpoint, step: int, root: str) -> Checkpoint:
    """Copy a reported checkpoint into the folder `checkpoint_<step>` of the trial.

    All ranks write to the same folder. Ray's `Checkpoint.to_directory` is not used, because it lets
    only one rank copy its files, and the other ranks only wait.

    Args:
        checkpoint: The checkpoint.
        step: Step of the report.
        root: Folder of the trial's checkpoints, or its address in the sweep's store.

    Raises:
        StoreError: The store does not answer.
    """
    name = f"checkpoint_{step:06d}"
    target = f"{root}/{name}"
    files: Any = checkpoint.filesystem
    if stores.is_address(root):
        with checkpoint.as_directory() as local:
            upload_checkpoint(Path(local), target)
    else:
        Path(target).mkdir(parents=True, exist_ok=True)
        pyarrow.fs.copy_files(checkpoint.path, target, source_filesystem=files)
    # The note is read from the reported checkpoint, because another rank may be overwriting the
    # copy.
    note = f"{checkpoint.path}/{CHECKPOINT_NOTE}"
    best_step = step
    if files.get_file_info(note).type == pyarrow.fs.FileType.File:
        with files.open_input_file(note) as file:
            best_step = json.loads(file.read())["best_step"]
    return Checkpoint(name, step, best_step)
