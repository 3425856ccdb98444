"""The live view in a notebook: what it shows, and how often. Tables of sweeps and results."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.errors import InputError, Problem
from sweeps.core.files.result_file import read_result
from sweeps.notebook import notebook_view
from sweeps.notebook.notebook_view import STOPPING, NotebookView, live_view
from sweeps.notebook.output_cell import in_notebook
from tests.controller.test_sweep import ONE, branches
from tests.controller.test_sweep_lookup import ended, recorded_sweep
from tests.terminal.test_live_layout import STANDING


class Handle:
    """A stand-in for IPython's handle of an output. It keeps the HTML that it shows."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []

    def display(self, view: Any) -> None:
        self.shown.append(("display", view._repr_mimebundle_((), ())["text/html"]))

    def update(self, view: Any) -> None:
        self.shown.append(("update", view._repr_mimebundle_((), ())["text/html"]))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time of the view, which a test sets."""
    now = types.SimpleNamespace(time=100.0)
    monkeypatch.setattr(notebook_view, "time", types.SimpleNamespace(monotonic=lambda: now.time))
    return now


def test_notes_about_the_space_are_lines_of_the_view() -> None:
    handle = Handle()
    NotebookView(handle, ["note: the functions are stored"])(STANDING)
    assert "note: the functions are stored" in handle.shown[0][1]


def test_the_view_is_updated_in_place_and_not_too_often(clock: Any) -> None:
    handle = Handle()
    view = NotebookView(handle)
    starting = dataclasses.replace(STANDING, stage="starting Ray", rows=())
    view(starting)
    view(dataclasses.replace(starting, seconds=93.0))  # too early
    view(dataclasses.replace(STANDING, seconds=94.0))  # another phase
    clock.time += 0.6
    view(dataclasses.replace(STANDING, seconds=95.0))
    view(dataclasses.replace(STANDING, seconds=96.0))
    view.close()
    assert [how for how, _ in handle.shown] == ["display", "update", "update", "update"]
    for (_, html), text in zip(handle.shown, ("1:32", "1:34", "1:35", "1:36"), strict=True):
        assert text in html
    last = handle.shown[-1][1]
    assert "ended" in last and "0 running" in last and "0029" not in last


def test_messages_and_an_interrupt_are_shown_at_once_and_stay(clock: Any) -> None:
    handle = Handle()
    view = NotebookView(handle)
    view(dataclasses.replace(STANDING, messages=("the data has 3 rows",)))
    view(dataclasses.replace(STANDING, reason="interrupted"))
    clock.time += 1
    view(dataclasses.replace(STANDING, reason="interrupted"))
    assert len(handle.shown) == 3
    html = handle.shown[-1][1]
    assert html.count(STOPPING[:30]) == 1 and "the data has 3 rows" in html
    assert "stopping: interrupted" in html


def test_only_a_notebook_has_a_live_view_and_never_beside_the_users_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with live_view(None) as show:
        assert show is None and not in_notebook()
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook()
    with live_view(print) as show:
        assert show is print
    del shell.kernel  # IPython in a terminal
    assert not in_notebook()


def test_a_sweep_is_a_table_in_a_notebook(tmp_path: Path) -> None:
    shown = sweeps.open(recorded_sweep(tmp_path))._repr_html_()
    for text in ("made-1", "killed", "0.25 (trial 0000)", "COMPLETE", "INTERRUPTED"):
        assert text in shown, text
    opened = sweeps.open(branches(tmp_path / "many", ONE, 5)[0])
    assert opened.best is not None and "0000" in opened.best._repr_html_()
    (tmp_path / "none").mkdir()
    assert "no trial yet" in sweeps.open(branches(tmp_path / "none", ONE, 0)[0])._repr_html_()


def test_a_result_is_a_table_in_a_notebook(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    best = {
        "trial": "0000",
        "value": 0.25,
        "test": 0.3,
        "params": {"eta": 0.1, "nested": {"depth": 4}},
        "preprocessor": "<none>",
    }
    ended(
        folder,
        best=best | {"scaling": {"num_workers": 2, "resources_per_worker": {"CPU": 1.0}}},
        notes=("a note",),
        reason="interrupted",
    )
    result = read_result(folder)
    assert result is not None
    shown = result._repr_html_()
    for text in (
        "1 completed, 1 pruned, 1 failed in 0:02",
        "2 workers",
        "nested.depth",
        "&lt;none&gt;",
        "a note",
        "interrupted",
        str(folder),
    ):
        assert text in shown, text


def test_a_notebook_shows_an_error_without_a_traceback() -> None:
    error = InputError([Problem("space.yaml:3:1", "`eta`: too large"), Problem("--cpus", "is 0")])
    assert error._render_traceback_() == [
        "InputError: space.yaml:3:1: `eta`: too large",
        "--cpus: is 0",
    ]
