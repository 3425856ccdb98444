"""The example notebooks, and sweeps in the kernel of a notebook: the live view, and the interrupt
of the kernel.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from docs.generate.notebooks import NOTEBOOKS, executed, outputs
from tests.commands import REPO, mlflow_database, space_of

pytestmark = [pytest.mark.integration, pytest.mark.extended]
SECONDS = 300.0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "file",
    [pytest.param(f, marks=[pytest.mark.long] * (f != NOTEBOOKS[0])) for f in NOTEBOOKS],
    ids=lambda file: file.stem,
)
def test_an_example_notebook_runs_and_shows_what_is_stored_in_it(file: Any, tmp_path: Path) -> None:
    shown = outputs(executed(file, tmp_path))
    assert shown == outputs(nbformat.read(file, as_version=4))  # type: ignore[no-untyped-call]
    kinds = [kind for cell in shown for kind in cell]
    assert (
        "stderr" not in kinds and "text/html" in kinds and "application/vnd.plotly.v1+json" in kinds
    )


class Kernel:
    """A Jupyter kernel that runs cells, and keeps the messages of the cell that runs."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        self.manager, self.client = start_new_kernel(cwd=str(folder), startup_timeout=SECONDS)
        self.messages: list[dict[str, Any]] = []

    def run(self, code: str, seen: Callable[[str], bool] | None = None) -> str:
        """Run a cell.

        Return when it has ended, or as soon as `seen` returns True for the text of an output.

        Returns:
            The last text that the cell has shown. The HTML of a display is its text.
        """
        self.messages.clear()
        self._id = self.client.execute(code)
        return self.wait(seen)

    def wait(self, seen: Callable[[str], bool] | None = None) -> str:
        """Wait for the end of the cell that runs; see `run`."""
        deadline, last = time.monotonic() + SECONDS, ""
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                assert self.manager.is_alive(), "the kernel has died"
                continue
            if message["parent_header"].get("msg_id") != self._id:
                continue
            self.messages.append(message)
            content = message["content"]
            if content.get("execution_state") == "idle":
                return last
            text = (
                content.get("text")
                or content.get("data", {}).get("text/html")
                or content.get("data", {}).get("text/plain")
            )
            text = text or "\n".join(content.get("traceback", ()))
            if text:
                last = text
                if seen is not None and seen(text):
                    return text
        raise AssertionError(f"the cell has not ended within {SECONDS} s; its last output: {last}")

    @property
    def kinds(self) -> list[str]:
        """The types of the messages of the cell, such as `update_display_data`."""
        return [message["msg_type"] for message in self.messages]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{mlflow_database()}")
    started = Kernel(tmp_path)
    yield started
    started.client.stop_channels()
    started.manager.shutdown_kernel(now=True)


def training(text: str) -> bool:
    """Return whether the live view shows a trial that has reported its second step."""
    return ", step 2" in text


@pytest.mark.timeout(600)
def test_an_interrupt_of_the_kernel_stops_the_sweep_and_it_can_be_resumed(
    kernel: Any, tmp_path: Path
) -> None:
    space_of(tmp_path, "held", limits="max_trials: 2, max_concurrent_trials: 1")
    kernel.run("import sweeps")
    assert not kernel.kinds.count("stream")
    kernel.run("result = sweeps.run('own.yaml', cpus=1)", training)
    kernel.manager.interrupt_kernel()
    last = kernel.wait()
    assert (
        kernel.kinds.count("display_data") == 1
        and "update_display_data" in kernel.kinds
        and "stream" not in kernel.kinds
    )
    assert (
        "interrupted" in last and "interrupt again to stop at once" in last and "0 running" in last
    )
    assert "('interrupted', 0, 1)" in kernel.run(
        "result.reason, result.trials['completed'], result.trials['interrupted']"
    )
    (tmp_path / "go").touch()
    assert "2/2" in kernel.run("result = sweeps.open('latest').resume()")
    assert "(None, 2)" in kernel.run("result.reason, result.trials['completed']")
    assert "COMPLETE" in kernel.run("sweeps.open('latest')")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_second_interrupt_ends_the_cell_and_not_the_kernel(kernel: Any, tmp_path: Path) -> None:
    space_of(tmp_path, "held", limits="max_trials: 1")
    kernel.run("import sweeps; mine = 7")
    kernel.run("sweeps.run('own.yaml', cpus=1)", training)
    kernel.manager.interrupt_kernel()
    kernel.wait(lambda text: "interrupt again to stop at once" in text)
    kernel.manager.interrupt_kernel()
    last = kernel.wait()
    assert "KeyboardInterrupt" in last and "stopped at once; to continue the sweep: " in last
    assert kernel.run("mine") == "7"
    (tmp_path / "go").touch()
    assert "1 completed" in kernel.run("sweeps.open('latest').resume()")
