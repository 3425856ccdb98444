"""`README.md` of a bundle, for people."""

from __future__ import annotations

import html
import json
import textwrap
from typing import Any

from markdown_it import MarkdownIt

from sweeps.bundle.manifest import ColumnSchema, Manifest
from sweeps.bundle.model_card import model_card

TRAINING = {
    "sweep": "churn-20261120-164626",
    "trial": "0007",
    "metric": "valid-auc",
    "goal": "maximize",
    "value": 0.9312345678,
    "test": 0.92,
    "params": {"eta": 0.1, "max_depth": 4},
    "preprocessor": "StandardScaler",
    "scaling": {"num_workers": 1},
    "seed": 3,
    "best_step": 12,
    "versions": {"sweeps": "0.2.0"},
    "git": {"commit": "abc123"},
}


def manifest(training: dict[str, Any] | None = None, **others: Any) -> Manifest:
    columns = [
        ColumnSchema(name="tenure", type="integer", dtype="int64"),
        ColumnSchema(name="plan", type="string", dtype="object"),
    ]
    facts: dict[str, Any] = {
        "label": "churned",
        "task": "binary",
        "classes": ["no", "yes"],
        "columns": columns,
        "checked": True,
    }
    facts |= {
        "created": "2026-11-20T16:46:26+00:00",
        "load": "m:load",
        "python": "3.11.7",
        "requirements": ["numpy==2.1.0"],
        "pickled": {},
    }
    return Manifest(**facts | others, training=TRAINING if training is None else training)


def test_a_model_says_what_it_is_and_how_to_use_it() -> None:
    text = model_card(manifest())
    expected = """
        # churn-20261120-164626: trial 0007

        This folder is one model with its fitted preprocessor. It takes raw rows \
and returns predictions.

        |  |  |
        | --- | --- |
        | `valid-auc` | 0.931235 |
        | `auc` on test | 0.92 |
        | preprocessor | `StandardScaler` |
        | params | `{"eta": 0.1, "max_depth": 4}` |
        | scaling | `{"num_workers": 1}` |
        | seed | `3` |
        | step | 12 |
        | exported | 2026-11-20T16:46:26+00:00 |
    """
    assert text.startswith(textwrap.dedent(expected).lstrip())
    assert (
        "sweeps predict . rows.csv\nsweeps serve ." in text
        and 'sweeps.load_bundle(".")' in text
        and "`mlflow.pyfunc.load_model`" in text
    )
    assert (
        "Columns of the rows: `tenure` (integer), `plan` (string). Other columns are ignored."
        in text
    )
    assert "The model predicts `churned`, one of these classes: `no`, `yes`." in text
    assert "needs these packages: `numpy==2.1.0`. It was written with Python 3.11.7." in text
    assert "Made with sweeps `0.2.0` and commit `abc123`." in text


def test_facts_that_are_unknown_are_left_out() -> None:
    text = model_card(manifest({}, label=None, task=None, classes=None, columns=[]))
    assert (
        text.startswith("# A model\n")
        and "None" not in text
        and "Columns" not in text
        and "predicts" not in text.partition("## Use")[2]
    )


def test_names_cannot_break_the_page_and_long_lists_are_cut() -> None:
    columns = [ColumnSchema(name=f"a|b`\n{n}", type="double", dtype="float64") for n in range(60)]
    text = model_card(manifest(columns=columns))
    assert (
        "``a|b` 49`` (double), and 10 others, see `manifest.json`. Other columns are ignored."
        in text
    )
    assert "a|b` 50" not in text


def test_names_are_shown_as_they_are_and_are_no_links() -> None:
    name = "<a href=//e>x</a> a|b ``c`` [d](http://e) \\| &lt;"
    facts = {**TRAINING, "sweep": name, "metric": name, "params": {name: 1}}
    page = MarkdownIt("commonmark").enable("table").render(model_card(manifest(facts)))
    assert "<a" not in page
    assert f"<h1>{html.escape(name)}: trial 0007</h1>" in page
    assert f"<td><code>{html.escape(name)}</code></td>" in page
    assert html.escape(json.dumps({name: 1})) in page
