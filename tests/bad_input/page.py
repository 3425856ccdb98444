"""The table as a page: `python -m tests.bad_input.page` writes `docs/bad_input.md` anew."""

from __future__ import annotations

from pathlib import Path

from tests.bad_input import ROWS, Case, keys, names, numbers, other_tools, rows, searching, texts, top

FILE = Path(__file__).parents[2] / "docs" / "bad_input.md"
COMMAND = "python -m tests.bad_input.page"
TABLE: dict[str, tuple[Case, ...]] = {
    **keys.TABLE,
    **searching.TABLE,
    **names.TABLE,
    **other_tools.TABLE,
    **numbers.TABLE,
    **texts.TABLE,
    **rows.TABLE,
}

# Known at a trial's first report alone.
METRIC = "the objective's metric `loss` was not reported at step 1; the loop reports: accuracy, f1"
METRIC_TEST = "test_a_metric_that_is_never_reported_is_named_with_those_that_are"

HEAD = f"""\
# Bad input, and what is said of it

<!-- Written by `{COMMAND}` from the table in tests/bad_input, which tests/test_bad_input.py holds true. -->

Each of these {{count}} was typed, and answered as shown: one line a problem, with its place, the value, the rule and the nearest valid
name; exit code 2; in under a second; without a traceback; and nothing was left behind, no folder and no process. Every problem of a
file is told at once. Unless another file is shown, one line of this one is replaced by the line under *input*, or added at its end:

```yaml
{{base}}```

`rows.csv` is `{{rows}}` and so on; ⏎ ends a line. What is wrong with a space file is said by `sweeps validate` and
`sweeps run` alike; `validate` opens no data, so what is under *Data* is said by `sweeps run`, before Ray starts.
"""


def code(text: str) -> str:
    """Text as code inside a table."""
    text = text.replace("|", "\\|")
    if not text:
        return ""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def row(case: Case) -> str:
    """One line of a table."""
    return f"| {case.name} | {code(cut(case.shown))} | {'<br>'.join(code(line) for line in case.answer if line)} |"


def cut(text: str, most: int = 160) -> str:
    """Text of at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def page() -> str:
    """All of it, as Markdown."""
    count = sum(map(len, TABLE.values()))
    first = "⏎".join(ROWS.splitlines()[:3])
    parts = [HEAD.replace("{count}", str(count)).replace("{base}", top()).replace("{rows}", first)]
    for title, cases in TABLE.items():
        parts += [f"\n## {title}\n\n| case | input | answer |\n|---|---|---|\n", *(f"{row(case)}\n" for case in cases)]
    parts.append(
        "\n## A metric that the loop never reports\n\nOnly the loop knows what it reports, so this is said at its first report, "
        f"with what it does report: {code(METRIC)}.\n`{METRIC_TEST}` in tests/controller/test_run.py tries it.\n"
    )
    return "".join(parts)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(page(), encoding="utf-8")
    print(f"wrote {FILE}")
