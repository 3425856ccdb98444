from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.core.files.atomic_files import partial_path, write_atomically, write_bytes, write_text


def test_a_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_text(file, "old")
    write_bytes(file, "néw".encode(), sync=True)
    assert file.read_text(encoding="utf-8") == "néw" and [p.name for p in tmp_path.iterdir()] == [
        "a.json"
    ]


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    outside, file = tmp_path / "outside", tmp_path / "a.json"
    outside.write_text("stays")
    file.symlink_to(outside)
    partial_path(file).symlink_to(outside)
    write_text(file, "new")
    assert outside.read_text() == "stays" and not file.is_symlink() and file.read_text() == "new"


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").touch()
    with pytest.raises(ZeroDivisionError), write_atomically(folder) as part:
        part.mkdir()
        raise ZeroDivisionError
    assert [p.name for p in tmp_path.iterdir()] == ["folder"] and (folder / "old").exists()


def test_a_staged_folder_replaces_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in ("old", "new"):
        partial_path(folder).mkdir(exist_ok=True)  # left by a process that was killed
        with write_atomically(folder) as part:
            part.mkdir()
            (part / name).touch()
    assert [p.name for p in folder.iterdir()] == ["new"] and not partial_path(folder).exists()
