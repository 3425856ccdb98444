"""Write `docs/bad_input.md` from the table of bad input: `python -m tests.bad_input.page`."""

from __future__ import annotations

from pathlib import Path

from tests.bad_input import (
    ROWS,
    Case,
    keys,
    names,
    numbers,
    other_tools,
    rows,
    searching,
    texts,
    top,
)

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

# Known only at a trial's first report.
METRIC = "the objective's metric `loss` was not reported at step 1; the loop reported: accuracy, f1"
METRIC_TEST = "test_a_metric_that_is_never_reported_is_named_with_those_that_are"

HEAD = f"""\
# Answers to bad input

<!-- Written by `{COMMAND}` from the table in tests/bad_input, \
which tests/test_bad_input.py checks. -->

This page shows {{count}} mistakes and what sweeps prints for each. The rules:

- sweeps prints one line for each problem, and all problems of a file at once.
- A line has the place, the value, the rule, and the nearest valid name or what to write instead.
- The exit code is 2. The answer comes within a second, without a traceback. \
No folder and no process is left behind.

Each case changes or adds one line of this file, unless another file is shown:

```yaml
{{base}}```

`rows.csv` contains `{{rows}}` and so on; ⏎ stands for the end of a line. \
`sweeps validate` and `sweeps run` give the same answers about a
space file. `validate` opens no data, so only `sweeps run` gives the answers under *Data*, \
before it starts Ray.
"""


def code(text: str) -> str:
    """Return a text as code for a cell of a table."""
    text = text.replace("|", "\\|")
    if not text:
        return ""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def row(case: Case) -> str:
    """Return the row of a case."""
    return (
        f"| {case.name} | {code(cut(case.shown))} | "
        f"{'<br>'.join(code(line) for line in case.answer if line)} |"
    )


def cut(text: str, most: int = 160) -> str:
    """Cut a text to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def page() -> str:
    """Return the page as Markdown."""
    count = sum(map(len, TABLE.values()))
    first = "⏎".join(ROWS.splitlines()[:3])
    parts = [HEAD.replace("{count}", str(count)).replace("{base}", top()).replace("{rows}", first)]
    for title, cases in TABLE.items():
        parts += [
            f"\n## {title}\n\n| case | input | answer |\n|---|---|---|\n",
            *(f"{row(case)}\n" for case in cases),
        ]
    parts.append(
        "\n## A metric that the loop never reports\n"
        "\nOnly the loop knows which metrics it reports. The trial fails at its first report "
        f"with this error: {code(METRIC)}.\n`{METRIC_TEST}` in tests/controller/test_run.py "
        "checks it.\n"
    )
    return "".join(parts)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(page(), encoding="utf-8")
    print(f"wrote {FILE}")
