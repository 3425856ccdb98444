"""`yaml-language-server`, which editors run, completes and explains the keys of a space file with
our JSON Schema, and marks mistakes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.plugins import plugin_registry
from sweeps.space.model.step_names import BUILTIN_STEPS
from sweeps.space.schema.json_schema import schema
from sweeps.space.sections.built_in_trainers import PACKAGE, trainer_names
from sweeps.space.sections.trainer_definition import definition_of
from tests.commands import REPO
from tests.editor.language_server import LanguageServer

pytestmark = pytest.mark.integration
SERVER = shutil.which("yaml-language-server")
MODELINE = "# yaml-language-server: $schema=sweeps.schema.json\n"
XGBOOST = """\
trainer: xgboost
data: {train: d.csv, valid: 0.2, label: y}
objective: {metric: valid-logloss, goal: minimize}
"""
SPACES = sorted((REPO / "search_spaces").rglob("*.yaml"))


class Editor:
    """An editor with documents in one folder, in which `sweeps schema` has written its schema."""

    def __init__(self, server: LanguageServer, folder: Path) -> None:
        self._server, self._folder, self._opened = server, folder, 0

    def open(self, text: str, modeline: str = MODELINE) -> tuple[Path, list[dict[str, Any]]]:
        """Open a new document. Return its path and its diagnostics."""
        self._opened += 1
        file = self._folder / f"space{self._opened}.yaml"
        return file, self._server.open(file, modeline + text)

    def problems(self, text: str) -> dict[str, str]:
        """Return the message at each marked text of a document."""
        by_place = {}
        for diagnostic in self.open(text)[1]:
            start, end = diagnostic["range"]["start"], diagnostic["range"]["end"]
            line = (MODELINE + text).splitlines()[start["line"]]
            by_place[
                line[
                    start["character"] : end["character"] if end["line"] == start["line"] else None
                ]
            ] = diagnostic["message"]
        return by_place

    def completions(self, text: str) -> dict[str, dict[str, Any]]:
        """Return the completions at the character `|` of a document, by label."""
        file, line, character = self._open_at_cursor(text)
        return {item["label"]: item for item in self._server.complete(file, line, character)}

    def hover(self, text: str) -> str:
        """Return the text that the editor shows at the character `|` of a document."""
        return self._server.hover(*self._open_at_cursor(text))

    def _open_at_cursor(self, text: str) -> tuple[Path, int, int]:
        before, after = text.split("|")
        file, _ = self.open(before + after)
        return file, (MODELINE + before).count("\n"), len(before) - before.rfind("\n") - 1


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    if SERVER is None:
        pytest.skip(
            "the tests of editors need yaml-language-server, as `npm install --global "
            "yaml-language-server` brings it"
        )
    folder = tmp_path_factory.mktemp("editor")
    (folder / "sweeps.schema.json").write_text(json.dumps(schema()))
    server = LanguageServer([SERVER, "--stdio"], folder)
    yield Editor(server, folder)
    server.close()


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_nothing_is_marked_in_the_shipped_spaces(editor: Any, file: Any) -> None:
    assert editor.problems(file.read_text()) == {}


def test_a_file_without_the_line_is_not_checked(editor: Any) -> None:
    assert editor.open("trainer: 3\n", modeline="")[1] == []


def test_the_server_completes_the_keys_of_the_file_and_of_search(editor: Any) -> None:
    assert {"space", "scheduler", "trackers", "runtime_env"} <= editor.completions(
        XGBOOST + "|\n"
    ).keys()
    completions = editor.completions(XGBOOST + "search:\n  |\n")
    assert completions.keys() == {
        "algorithm",
        "seed",
        "options",
        "initial_points",
        "from",
        "portfolio",
    }
    assert "Seed of the data splits" in completions["seed"]["documentation"]


def test_the_server_completes_names_and_describes_them(editor: Any) -> None:
    trainers = editor.completions("trainer: |\n")
    assert (
        set(trainer_names()) <= trainers.keys()
        and "XGBoost" in trainers["xgboost"]["documentation"]
    )
    assert (
        set(plugin_registry.names("sampler"))
        <= editor.completions(XGBOOST + "search:\n  algorithm: |\n").keys()
    )
    assert (
        set(plugin_registry.names("scheduler"))
        <= editor.completions(XGBOOST + "scheduler:\n  name: |\n").keys()
    )
    assert {"mlflow", "jsonl"} <= editor.completions(XGBOOST + "trackers:\n  - |\n").keys()


@pytest.mark.parametrize("place", ["preprocessor: |", "preprocessor:\n    - |"])
def test_the_server_completes_steps(editor: Any, place: str) -> None:
    assert BUILTIN_STEPS.keys() <= editor.completions(f"{XGBOOST}space:\n  {place}\n").keys()


def test_the_server_completes_the_parameters_of_a_step(editor: Any) -> None:
    completions = editor.completions(
        XGBOOST + "space:\n  preprocessor:\n    - SimpleImputer:\n        |\n"
    )
    assert {"columns", "strategy", "fill_value"} <= completions.keys()


def test_editor_completes_options_of_algorithm_and_scheduler(editor: Any) -> None:
    completions = editor.completions(XGBOOST + "search:\n  algorithm: nsga2\n  options:\n    |\n")
    assert {
        "population_size",
        "crossover_prob",
    } <= completions.keys() and "sigma0" not in completions
    completions = editor.completions(XGBOOST + "scheduler:\n  name: asha\n  |\n")
    assert {
        "max_t",
        "grace_period",
        "reduction_factor",
    } <= completions.keys() and "brackets" not in completions


def test_the_server_completes_the_parameters_of_the_trainer(editor: Any) -> None:
    completions = editor.completions(XGBOOST + "space:\n  params:\n    |\n")
    assert completions.keys() == definition_of(f"{PACKAGE}.xgboost").parameters.keys()


def test_the_server_completes_the_options_of_a_trainer(editor: Any) -> None:
    completions = editor.completions("trainer:\n  name: keras\n  |\n")
    assert {"model", "framework", "reuse"} <= completions.keys()
    assert {"loop", "estimator", "trainable", "command"} <= editor.completions(
        "trainer:\n  |\n"
    ).keys()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("space:\n  params:\n    e|ta: 0.1\n", "Learning rate."),
        ("space:\n  params:\n    eta: {log|uniform: [0.1, 1]}\n", "uniform in its logarithm"),
        ("space:\n  preprocessor: Standard|Scaler\n", "Subtract the mean of each column"),
        ("limits: {time|out: 1h}\n", "Longest time of the whole sweep"),
    ],
)
def test_the_server_explains(editor: Any, text: str, words: str) -> None:
    assert words in editor.hover(XGBOOST + text)


MISTAKES = {
    "step": (XGBOOST + "space: {preprocessor: StandardScalr}\n", "StandardScalr"),
    "step of a list": (XGBOOST + "space: {preprocessor: [StandardScalr]}\n", "StandardScalr"),
    "key": (XGBOOST + "limts: {max_trials: 3}\n", "limts"),
    "key of a section": (XGBOOST + "limits: {max_trails: 3}\n", "max_trails"),
    "parameter": (
        XGBOOST.replace("xgboost", "torch_tabular") + "space: {params: {widht: 8}}\n",
        "widht",
    ),
    "algorithm": (XGBOOST + "search: {algorithm: bayes}\n", "bayes"),
    "scheduler": (XGBOOST + "scheduler: {name: ahsa, max_t: 9}\n", "ahsa"),
    "tracker": (XGBOOST + "trackers: [mlflw]\n", "mlflw"),
    "value": (XGBOOST + "space: {params: {eta: fast}}\n", "fast"),
    "number": (XGBOOST + "limits: {max_trials: many}\n", "many"),
}


@pytest.mark.parametrize(("text", "marked"), MISTAKES.values(), ids=MISTAKES)
def test_the_server_marks_a_mistake_and_nothing_else(editor: Any, text: Any, marked: Any) -> None:
    assert editor.problems(text).keys() == {marked}


RIGHT = {
    "trainer of one's own": XGBOOST.replace("xgboost", "my_trainer"),
    "trainer of one's own with options": XGBOOST.replace(
        "xgboost", "{name: my_trainer, widths: [1, 2]}"
    ),
    "step of one's own": XGBOOST
    + "space: {preprocessor: [my_steps:Clip, {my_steps:Clip: {quantile: 0.9}}]}\n",
    "null": XGBOOST + "limits: {timeout: null}\nspace: {params: {eta: null}, preprocessor: null}\n"
    "scheduler: null\n",
    "variables": XGBOOST.replace("0.2", '"${SHARE}"')
    + "limits:\n  max_trials: ${N}\n  timeout: ${TIME:-1h}\n  max_failures: ${F:-2}\nspace:\n"
    "  params:\n    eta: ${ETA}\n"
    "    booster: ${BOOSTER}\n    max_depth: {randint: [3, '${DEPTH}']}\n"
    "  scaling:\n    num_workers: ${WORKERS:-2}\n",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_nothing_is_marked_in_valid_files(editor: Any, text: Any) -> None:
    assert editor.problems(text) == {}


PAGE = (REPO / "docs/how-to/editor.md").read_text()
SHOWN = [
    block.removesuffix("```")
    for block in re.findall(r"^```text\n(.*?^```)$", PAGE, re.DOTALL | re.MULTILINE)
]


def test_the_page_shows_what_the_server_answers(editor: Any) -> None:
    """The blocks on the page are the file, its mistakes, and the text for a key."""
    file, mistakes, text = SHOWN
    file = file.removeprefix(MODELINE)
    lines = (MODELINE + file).splitlines()
    answers = [
        f"{next(i for i, line in enumerate(lines, 1) if part in line)}: {part}: {why}"
        for part, why in editor.problems(file).items()
    ]
    assert "".join(f"{line}\n" for line in sorted(answers)) == mistakes
    assert text.strip() in editor.hover(file.replace("eta: fast", "e|ta: 0.1"))
