"""Pack a checkpoint into bytes, and unpack the bytes into a folder.

A checkpoint is a folder. As bytes, it fits into a database, a message, or Ray's object store.
`to_bytes` and `from_bytes` do the same with a bundle. Run this module with the name or the folder
of a sweep, to send the checkpoint of the sweep's best trial through bytes:

    python search_spaces/tutorials/checkpoint_bytes.py breast_cancer
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
from pathlib import Path

import sweeps
from sweeps.trainers import xgboost


def to_bytes(folder: str | Path) -> bytes:
    """Return a folder with all its files as bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname=".")
    return packed.getvalue()


def from_bytes(data: bytes, folder: str | Path) -> Path:
    """Write the files that `to_bytes` has packed to a folder, and return the folder."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")  # The filter refuses files outside the folder.
    return Path(folder)


def main(name: str) -> None:
    """Compare the best trial's model with its copy that went through bytes."""
    sweep = sweeps.open(name)
    best = sweep.best
    if best is None:
        sys.exit(f"{name} has no finished trial")
    checkpoint = max((sweep.folder / "trials" / best.id).rglob("model.ubj")).parent
    packed = to_bytes(checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        copy = xgboost.load(from_bytes(packed, folder))
    same = copy.booster.save_raw() == xgboost.load(checkpoint).booster.save_raw()
    print(
        f"trial {best.id}: {len(packed):,} bytes; the unpacked model is "
        f"{'equal' if same else 'NOT equal'}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
