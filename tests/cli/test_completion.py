"""`sweeps completion`: the shells themselves complete commands, options, sweeps and trials."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from sweeps import cli
from tests.commands import REPO

NAMES = ("churn-20260102-120000", "churn-20260103-120000", "wine-20260102-120000")
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(sweeps completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit && compinit -u -D; eval "$(sweeps completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "sweeps completion fish | source"),
}


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "sweeps-runs"
    for name in NAMES:
        (root / name / "trials" / "0000").mkdir(parents=True)
        (root / name / "trials" / "0012").mkdir()
        (root / name / "origin.json").write_text(
            '{"format": 1, "base": "/", "cwd": "/", "overrides": [], "began": 1.0}'
        )
    (root / "mlartifacts").mkdir()
    return root


def completed(*words: str, incomplete: str = "") -> list[str]:
    items = ShellComplete(cli.main, {}, "sweeps", "_SWEEPS_COMPLETE").get_completions(
        list(words), incomplete
    )
    return [item.value for item in items if item.type == "plain"]


def test_commands_options_sweeps_and_trials_are_completed(root, monkeypatch):
    monkeypatch.chdir(root.parent)
    assert completed(incomplete="va") == ["validate"] and "--csv" in completed(
        "show", "latest", incomplete="--c"
    )
    assert completed("show", incomplete="chu") == list(NAMES[:2]) and completed("show") == [
        *NAMES,
        "latest",
    ]
    assert completed("compare", NAMES[0], incomplete="w") == [NAMES[2]] and completed(
        "rm", incomplete="lat"
    ) == ["latest"]
    assert completed("logs", NAMES[0]) == ["0000", "0012"] and completed(
        "rerun", NAMES[0], incomplete="001"
    ) == ["0012"]
    assert completed("show", NAMES[0], "--trial") == ["best", "0000", "0012"] and completed(
        "export", "wine", "--trial"
    ) == ["0000", "0012"]
    for verb in ("resume", "gc", "repair", "predict", "serve"):
        assert NAMES[0] in completed(verb), verb


def test_another_root_is_used_and_a_store_is_not_asked(root, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert completed("show") == [] and completed("logs", "churn") == []
    assert completed("show", "--dir", str(root), incomplete="w") == [NAMES[2]]
    assert (
        completed("show", "--dir", "s3://bucket/x") == []
        and completed("logs", "--dir", str(root / "none"), "x") == []
    )


@pytest.mark.integration
@pytest.mark.parametrize("shell", START)
def test_a_shell_completes_the_names(root, tmp_path, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "bin" / "sweeps"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom sweeps.cli import main\nmain()\n")
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPO),
        "HOME": str(tmp_path),
        "TERM": "dumb",
    }
    with Terminal(START[shell][0], root.parent, environment) as terminal:
        terminal.send(START[shell][1] + "; echo rea''dy\n")
        terminal.wait_for("ready")
        for typed, shown in (
            ("sweeps valid", "sweeps validate"),
            ("sweeps show win", f"sweeps show {NAMES[2]}"),
            (f"sweeps logs {NAMES[0]} 001", f"{NAMES[0]} 0012"),
        ):
            terminal.send(f"{typed}\t")
            terminal.wait_for(shown)
            terminal.send("\x15")  # Ctrl-U deletes the line


class Terminal:
    """A shell in a pseudo-terminal."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]):
        self._output = ""
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)

    def send(self, text: str) -> None:
        """Type a text. What was shown before is forgotten."""
        self._output = ""
        os.write(self._file, text.encode())

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Wait until the shell shows a text. Escape sequences between its characters do not matter."""
        until = time.monotonic() + seconds
        while text not in self._output:
            left = until - time.monotonic()
            assert left > 0, f"the shell does not show {text!r}: {self._output!r}"
            if select.select([self._file], [], [], left)[0]:
                self._output += os.read(self._file, 4096).decode(errors="replace")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._file)
