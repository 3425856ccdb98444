"""Folders made by a stranger: no command touches a file outside, hangs, or sends control characters
to the terminal.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.core.errors import make_encodable, shorten
from sweeps.core.files.disk import check_disk_space
from sweeps.core.files.sweep_folder import JOURNAL, ORIGIN
from sweeps.core.text.shell_text import printable
from tests.commands import invoke


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def victim(finished_sweep: Any, tmp_path: Path) -> Path:
    """Return the trials of another sweep."""
    return Path(shutil.copytree(finished_sweep / "trials", tmp_path / "victim"))


@pytest.mark.parametrize(
    "verb",
    [
        ("gc", "--top", 1),
        ("resume", "--trust"),
        ("export", "--trial", "0000", "--trust"),
        ("repair",),
    ],
)
@pytest.mark.parametrize("which", ["trials", "trials/0000", "trials/0000/checkpoint_000004"])
def test_r1_a_link_out_of_the_folder_is_refused_and_what_it_leads_to_stays(
    finished_sweep: Any, victim: Any, verb: Any, which: str
) -> None:
    if verb[0] == "repair" and which != "trials":
        pytest.skip("a repair goes into `trials` alone")
    there = victim / Path(which).relative_to("trials")
    shutil.rmtree(finished_sweep / which, ignore_errors=True)
    (finished_sweep / which).symlink_to(there)
    before = files_of(victim)
    done = invoke(verb[0], finished_sweep, *verb[1:])
    assert (
        done.exit_code == 2
        and str(finished_sweep / which) in done.stderr
        and "is a link" in done.stderr
    ), done.output
    assert files_of(victim) == before


def test_r1_an_export_goes_nowhere_else_and_takes_nothing_from_elsewhere(
    finished_sweep: Any, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (finished_sweep / "exports").symlink_to(tmp_path / "elsewhere")
    done = invoke("export", finished_sweep, "--trial", "0000", "--trust")
    assert (
        done.exit_code == 2
        and str(finished_sweep / "exports") in done.stderr
        and not any((tmp_path / "elsewhere").iterdir())
    )
    (finished_sweep / "exports").unlink()
    (tmp_path / "secret").write_text("mine")
    checkpoint = next((finished_sweep / "trials" / "0000").glob("checkpoint_*"))
    (checkpoint / "more").symlink_to(tmp_path / "secret")
    done = invoke("export", finished_sweep, "--trial", "0000", "--trust", "-o", tmp_path / "out")
    assert (
        done.exit_code == 2
        and str(checkpoint / "more") in done.stderr
        and not (tmp_path / "out").exists()
    )


@pytest.mark.parametrize(
    "name", ["facts.json", "test.parquet", "x/preprocessor-1.pkl", "x/preprocessor-1.pkl.mac"]
)
def test_r2_an_export_waits_for_no_pipe(finished_sweep: Any, name: str) -> None:
    file = finished_sweep / "prepared" / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    done = invoke("export", finished_sweep, "--trial", "0000", "--trust")
    assert (
        done.exit_code == 2 and done.stderr.startswith(f"{file}: ") and done.stderr.count("\n") == 1
    )


def test_logs_reads_only_files_of_the_trial(finished_sweep: Any, tmp_path: Path) -> None:
    logs = finished_sweep / "trials" / "0000" / "logs"
    (tmp_path / "secret").write_text("mine\n")
    (logs / "rank-x.log").touch()
    (logs / "rank-7.log").mkdir()
    (logs / "rank-8.log").symlink_to(tmp_path / "secret")
    os.mkfifo(logs / "rank-9.log")
    done = invoke("logs", finished_sweep, "0000")
    assert done.exit_code == 0 and "mine" not in done.stdout
    shutil.rmtree(logs)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rank-0.log").write_text("mine\n")
    logs.symlink_to(tmp_path / "other")
    assert "mine" not in invoke("logs", finished_sweep, "0000").output


@pytest.mark.parametrize(
    "odd", ["\x1b[31m", "\x1b]0;x\x07", "\x9b5m", "\u202e", "\ud800"], ids=ascii
)
def test_control_characters_are_shown_as_text(finished_sweep: Any, odd: str) -> None:
    origin = json.loads((finished_sweep / ORIGIN).read_text())
    (finished_sweep / ORIGIN).write_text(json.dumps(origin | {"metric": f"m{odd}"}))
    journal = (
        (finished_sweep / JOURNAL)
        .read_bytes()
        .replace(b"StandardScaler", b"St" + json.dumps(odd)[1:-1].encode())
    )
    (finished_sweep / JOURNAL).write_bytes(journal)
    for args in (
        ("show", finished_sweep),
        ("show", finished_sweep, "--trial", "0000"),
        ("ls", "--dir", finished_sweep.parent),
    ):
        done = invoke(*args)
        assert odd not in done.output and odd[0] not in done.output


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "é 漢 😀"])
def test_ordinary_text_is_printed_as_it_is(text: str) -> None:
    assert printable(text) == text == make_encodable(text)


def test_a_log_keeps_its_colors_and_no_other_escape_sequence() -> None:
    assert printable("\x1b[1;31mred\x1b[0m \x1b[2J", colors=True) == "\x1b[1;31mred\x1b[0m \\x1b[2J"


def test_an_error_message_can_be_printed_whatever_name_it_contains() -> None:
    text = shorten(f"cannot read {os.fsdecode(bytes([0xE9]))}.csv")
    assert text.encode() and text == r"cannot read \udce9.csv"


def test_r3_full_disk_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"OSError: [Errno 28] {os.strerror(errno.ENOSPC)}: 'checkpoint'"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 20))
    check_disk_space(tmp_path, "ValueError: of the loop's own")
    with pytest.raises(OSError) as e:
        check_disk_space(tmp_path, said)
    assert e.value.errno == errno.ENOSPC
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50 << 30))
    check_disk_space(tmp_path, said)


def test_a_name_that_is_too_long_for_the_disk_is_refused(finished_sweep: Any) -> None:
    done = invoke("export", finished_sweep, "--trial", "0000", "--trust", "-o", "x" * 300)
    assert (
        done.exit_code == 2
        and "--output" in done.stderr
        and os.strerror(errno.ENAMETOOLONG) in done.stderr
    )
