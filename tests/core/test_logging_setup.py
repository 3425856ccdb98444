"""The lines of `sweep.log` cannot control a terminal, and cannot look like other messages."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.core.host import logging_setup

HOSTILE = "\x1b]0;title\x07 \x9b31m\r\u202eabc\u2028\ud800"
FAKE = "one\n2026-01-02 03:04:05,678 ERROR sweeps: everything is lost"
RECORD = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ (?P<level>[A-Z]+) (?P<name>\S+): ")


def test_hostile_texts_in_messages_tracebacks_and_prints_become_escapes(tmp_path: Path) -> None:
    with logging_setup.redirect_to_file(tmp_path / "sweep.log"):
        logging.getLogger("sweeps.x").warning("command %s", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("sweeps.x").exception("it failed")
        print(HOSTILE)
    text = (tmp_path / "sweep.log").read_text()
    assert text.count(r"\x1b]0;title\x07 \x9b31m\r\u202eabc\u2028\ud800") == 3
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("as_error", [False, True])
def test_no_message_looks_like_another_message(tmp_path: Path, as_error: bool) -> None:
    with logging_setup.redirect_to_file(tmp_path / "sweep.log"):
        log = logging.getLogger("sweeps.x")
        log.warning("%s", FAKE, exc_info=ValueError(FAKE) if as_error else None)
        log.info("done")
    lines = (tmp_path / "sweep.log").read_text().splitlines()
    records = [match for line in lines if (match := RECORD.match(line))]
    assert [(match["level"], match["name"]) for match in records] == [
        ("WARNING", "sweeps.x"),
        ("INFO", "sweeps.x"),
    ]
    assert "  2026-01-02 03:04:05,678 ERROR sweeps: everything is lost" in lines


def test_a_handler_writes_to_a_descriptor(tmp_path: Path) -> None:
    code = (
        "import logging, sys; from sweeps.core.host.logging_setup import file_handler\n"
        "handler = file_handler(2); sys.stderr = handler.stream\n"
        "logging.basicConfig(handlers=[handler])\n"
        "logging.warning('\\x1b[2J')\n"
        "raise ValueError('\\x07')"
    )
    with open(tmp_path / "log", "ab") as file:
        subprocess.run([sys.executable, "-c", code], stderr=file, env=os.environ, check=False)
    text = (tmp_path / "log").read_text()
    assert r"WARNING root: \x1b[2J" in text and text.endswith("ValueError: \\x07\n")


@pytest.mark.parametrize("name", ["RAY_TMPDIR", "TMPDIR"])
def test_a_temporary_folder_that_is_too_long_for_sockets_is_replaced(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for folder, expected in (("/t/" + "x" * 90, "/tmp"), ("/t/short", None)):
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        monkeypatch.delenv("TMPDIR", raising=False)
        monkeypatch.setenv(name, folder)
        logging_setup.set_environment()
        assert os.environ.get("RAY_TMPDIR") == (
            expected or (folder if name == "RAY_TMPDIR" else None)
        )
    session = "/ray/session_2026-11-28_10-04-25_123456_1234567/sockets/plasma_store"
    assert logging_setup.LONGEST_TEMPORARY + len(session) == 107
