"""The live view in a notebook: what it shows, and how often; and the tables of sweeps and results."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections import Counter
from html.parser import HTMLParser

import pytest

import sweeps
from sweeps.controller import api, notebook_view
from sweeps.controller.notebook_html import RUNNING_TRIALS, status_html
from sweeps.controller.notebook_view import STOPPING, NotebookView, best_of, live_view
from sweeps.controller.status import BestTrial, ResourceUse, SweepStatus, TrialRow
from sweeps.core.errors import InputError, Problem
from sweeps.core.notebooks import in_notebook
from sweeps.core.resources import shape_of
from sweeps.core.result import SweepResult, read_result
from tests.controller.test_sweep import ONE, branches
from tests.controller.test_sweep_lookup import ended, made


class Tags(HTMLParser):
    """The texts of an HTML document, and a check that its tags are closed."""

    def __init__(self, document: str):
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows = 0
        self.feed(document)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("style", "script")
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


class Handle:
    """A stand-in for IPython's handle of an output. It keeps what it shows."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, dict[str, str]]] = []

    def display(self, content: dict[str, str], raw: bool) -> None:
        self.shown.append(("display", content))

    def update(self, content: dict[str, str], raw: bool) -> None:
        self.shown.append(("update", content))


@pytest.fixture
def shape():
    return shape_of({"num_workers": 2, "resources_per_worker": {"CPU": 1.0}}, "none")


@pytest.fixture
def clock(monkeypatch):
    """The time of the view, which a test sets."""
    now = types.SimpleNamespace(time=100.0)
    monkeypatch.setattr(notebook_view, "time", types.SimpleNamespace(monotonic=lambda: now.time))
    return now


def row(number: int, shape, **more) -> TrialRow:
    return TrialRow(
        f"{number:04d}",
        "training",
        3,
        9,
        0.5,
        0.25,
        shape,
        61.0,
        configuration=(("eta", "0.1"), ("<b>", "1")),
        **more,
    )


def status(shape, rows: int = 2, **more) -> SweepStatus:
    known = {
        "states": Counter(RUNNING=rows, COMPLETE=3, FAIL=1),
        "total": 16,
        "best": BestTrial("0001", 0.25, 7, (("eta", "0.3"),)),
    }
    known |= {
        "rows": tuple(row(n, shape) for n in range(rows)),
        "use": (ResourceUse("CPU", 4.0, 2.0),),
        "name": "made-1",
        "metric": "loss",
    }
    return SweepStatus(**{**known, "seconds": 65.0, **more})


def test_the_view_shows_the_sweep_and_its_running_trials(shape):
    shown = Tags(
        status_html(status(shape, failure=("0002", "ValueError: <x>")), ["note: <i>careful</i>"])
    )
    for text in (
        "note: <i>careful</i>",
        "made-1",
        "1:05",
        "4/16",
        "2 running, 3 completed, 0 pruned, 1 failed",
        "best 0.25 loss",
    ):
        assert text in shown.text, text
    for text in (
        "trial 0001, step 7",
        "eta=0.3",
        "failed 0002: ValueError: <x>",
        "in use CPU 2/4",
        "3/9",
        "eta=0.1, <b>=1",
    ):
        assert text in shown.text, text
    assert shown.rows == 3
    waits = dataclasses.replace(status(shape), rows=(row(7, shape, notice="waits for <2> GPUs"),))
    assert Tags(status_html(waits)).text.endswith("trial 0007: waits for <2> GPUs")
    many = Tags(status_html(status(shape, rows=RUNNING_TRIALS + 5)))
    assert many.rows == RUNNING_TRIALS + 1 and "… and 5 more" in many.text


def test_notes_about_the_space_are_lines_of_the_view_and_not_of_the_log(shape, monkeypatch, caplog):
    handle = Handle()
    NotebookView(handle, ["note: the functions are stored"])(status(shape))
    assert Tags(handle.shown[0][1]["text/html"]).text.startswith("note: the functions are stored")
    notes = ("the functions are stored",)
    assert api._show_notes(notes, None) == () and caplog.messages == [
        "note: the functions are stored"
    ]
    monkeypatch.setattr(api, "in_notebook", lambda: True)
    assert (
        api._show_notes(notes, None) == ("note: the functions are stored",)
        and len(caplog.messages) == 1
    )
    assert api._show_notes(notes, print) == () and len(caplog.messages) == 2, (
        "the user's own function shows no notes"
    )


def test_the_view_is_updated_in_place_and_not_too_often(clock, shape):
    handle = Handle()
    view = NotebookView(handle)
    view(status(shape, stage="starting Ray", rows=0))
    view(status(shape, seconds=66.0, stage="starting Ray", rows=0))  # too early
    view(status(shape, seconds=67.0))  # another phase
    clock.time += 0.6
    view(status(shape, seconds=68.0))
    view(status(shape, seconds=69.0))
    view.close()
    assert [how for how, _ in handle.shown] == ["display", "update", "update", "update"]
    assert [
        text.split("</b>")[1].split("<")[0].split()[1]
        for text in (c["text/html"] for _, c in handle.shown)
    ] == [
        "1:05",
        "1:07",
        "1:08",
        "1:09",
    ]
    last = Tags(handle.shown[-1][1]["text/html"])
    assert "ended" in last.text and "0 running, 3 completed" in last.text and not last.rows
    assert "best 0.25 (trial 0001)" in handle.shown[-1][1]["text/plain"]


def test_in_the_end_the_view_shows_the_winner_which_was_not_stopped_early(shape, tmp_path):
    ended(made(tmp_path))
    result = SweepResult.from_json(read_result(tmp_path / "made-1") or {})
    handle = Handle()
    view = NotebookView(handle)
    view(status(shape))
    view.result = result
    view.close()
    text = Tags(handle.shown[-1][1]["text/html"]).text
    assert "best 0.25 loss trial 0000 preprocessor=none" in text and "0001" not in text
    assert best_of(dataclasses.replace(result, best=None), status(shape).best) is None
    same = BestTrial("0000", 0.25, 9)
    assert best_of(result, same) is same


def test_messages_and_an_interrupt_are_shown_at_once_and_stay(clock, shape):
    handle = Handle()
    view = NotebookView(handle)
    view(status(shape, messages=("the data has 3 rows",)))
    view(status(shape, reason="interrupted"))
    clock.time += 1
    view(status(shape, reason="interrupted"))
    assert len(handle.shown) == 3
    text = Tags(handle.shown[-1][1]["text/html"]).text
    assert (
        text.count(STOPPING) == 1
        and "the data has 3 rows" in text
        and "stopping: interrupted" in text
    )


def test_only_a_notebook_has_a_live_view_and_never_beside_the_users_own(monkeypatch):
    with live_view(None) as show:
        assert show is None and not in_notebook()
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook()
    with live_view(print) as show:
        assert show is print
    del shell.kernel  # IPython in a terminal
    assert not in_notebook()


def test_a_sweep_is_a_table_in_a_notebook(tmp_path, monkeypatch):
    shown = Tags(sweeps.open(made(tmp_path))._repr_html_())
    for text in (
        "made-1",
        "killed",
        "minimize loss",
        "0.25 (trial 0000)",
        "COMPLETE",
        "INTERRUPTED",
        "StandardScaler",
    ):
        assert text in shown.text, text
    monkeypatch.setattr("sweeps.controller.notebook_html.BEST_TRIALS", 3)
    opened = sweeps.open(branches(tmp_path / "many", ONE, 5)[0])
    many = Tags(opened._repr_html_())
    assert (
        "… and 2 more" in many.text
        and "booster" in many.text
        and many.text.index("0000") < many.text.index("0001")
    )
    assert opened.best is not None and "trial0000value1" in Tags(opened.best._repr_html_()).text
    (tmp_path / "none").mkdir()
    assert (
        "no trial yet"
        in Tags(sweeps.open(branches(tmp_path / "none", ONE, 0)[0])._repr_html_()).text
    )


def test_a_result_is_a_table_in_a_notebook(tmp_path):
    folder = made(tmp_path)
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
    shown = Tags(SweepResult.from_json(read_result(folder) or {})._repr_html_())
    for text in (
        "1 completed, 1 pruned, 1 failed in 0:02",
        "2 workers",
        "nested.depth4",
        "<none>",
        "a note",
        "interrupted",
        str(folder),
    ):
        assert text in shown.text, text


def test_a_notebook_shows_an_error_without_a_traceback():
    error = InputError([Problem("space.yaml:3:1", "`eta`: too large"), Problem("--cpus", "is 0")])
    assert error._render_traceback_() == [
        "InputError: space.yaml:3:1: `eta`: too large",
        "--cpus: is 0",
    ]
