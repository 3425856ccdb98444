"""Trackers are imported and constructed before a sweep starts. Every problem is one clear line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.testing.pytest_trackers import SPACE
from sweeps.tracking.create import create_trackers
from sweeps.tracking.jsonl import JsonLinesTracker

MODULE = """\
class Good:
    def __init__(self, path="x"): self.path = path
    def handle(self, event): pass
    def close(self): pass
class NoClose:
    def handle(self, event): pass
class Nothing: pass
def make(path): return Good(path)
def wrong(): return 3
number = 3
"""


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_trackers.py").write_text(MODULE)
    (tmp_path / "broken_tracker.py").write_text("import no_such_package\nclass Good: pass\n")

    def space(trackers: Any) -> Any:
        file = tmp_path / "space.yaml"
        file.write_text(f"{SPACE}trackers: {trackers}\n")
        return load(file)

    yield space
    for module in ("my_trackers", "broken_tracker"):
        sys.modules.pop(module, None)


def test_trackers_of_ours_and_of_the_users_are_created_with_their_options(space: Any) -> None:
    trackers = create_trackers(
        space(
            '[mlflow, jsonl, "my_trackers:Good", {"my_trackers:Good": {path: y}}, '
            '{"my_trackers:make": {path: z}}]'
        )
    )
    assert [name for name, _ in trackers] == [
        "jsonl",
        "my_trackers:Good",
        "my_trackers:Good",
        "my_trackers:make",
    ]
    assert isinstance(trackers[0][1], JsonLinesTracker) and [
        vars(tracker)["path"] for _, tracker in trackers[1:]
    ] == ["x", "y", "z"]


@pytest.mark.parametrize(
    "tracker, says",
    [
        (
            '"my_trackers:NoClose"',
            (
                "`my_trackers:NoClose` has no method `close`; a tracker must have the methods "
                "`handle` and `close`"
            ),
        ),
        (
            '"my_trackers:Nothing"',
            "`my_trackers:Nothing` has no method `handle` and no method `close`",
        ),
        ('"my_trackers:wrong"', "`my_trackers:wrong` has no method `handle`"),
        ('"my_trackers:number"', "`my_trackers:number` has the type int, but must be a class"),
        (
            '{"my_trackers:Good": {pth: y}}',
            (
                "`my_trackers:Good` cannot be created with the options pth: TypeError: "
                ".*unexpected "
                "keyword argument 'pth'"
            ),
        ),
        (
            '"broken_tracker:Good"',
            (
                "`broken_tracker:Good` cannot be imported: ModuleNotFoundError: No module named "
                "'no_such_package'"
            ),
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_place(
    space: Any, tracker: str, says: str
) -> None:
    with pytest.raises(InputError, match=says) as refused:
        create_trackers(space(f"[jsonl, {tracker}]"))
    (problem,) = refused.value.problems
    assert (
        problem.place.endswith("space.yaml:9:19")
        and str(problem).count("\n") == 0
        and problem.text.startswith("trackers.1: ")
    )
