"""Only one process at a time runs a sweep."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import SweepLocked
from sweeps.core.files.folder_lock import FolderLock, is_driven
from sweeps.core.files.sweep_folder import LOCK


@pytest.mark.parametrize("deleted", [False, True], ids=["lock file there", "lock file deleted"])
def test_a_locked_folder_cannot_be_locked_again(tmp_path: Path, deleted: bool) -> None:
    with FolderLock(tmp_path) as lock:
        if deleted:
            (tmp_path / LOCK).unlink()
        assert is_driven(tmp_path)
        with pytest.raises(SweepLocked, match="is running this sweep"):
            FolderLock(tmp_path)
        lock.release()
    assert not is_driven(tmp_path)
    FolderLock(tmp_path).release()


def test_on_a_file_system_that_cannot_lock_folders_the_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def no_folders(file: Any, operation: Any) -> None:
        if isinstance(file, int):
            raise OSError(9, "Bad file descriptor")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", no_folders)
    with FolderLock(tmp_path):
        assert is_driven(tmp_path)
        with pytest.raises(SweepLocked):
            FolderLock(tmp_path)
    assert not is_driven(tmp_path)
