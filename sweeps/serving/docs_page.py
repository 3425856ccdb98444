"""The page `/docs`: the fields of the model, and a form that sends a request.

It loads nothing from the network.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

# The browser must not load or send anything elsewhere, even if a column's name were to contain
# markup.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
    "'self'; base-uri 'none'; form-action 'none'"
)
STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #8884; padding: .25em .7em; text-align: left; vertical-align: top }
textarea { box-sizing: border-box; width: 100%; height: 16em; font: 13px/1.4 ui-monospace, monospace }
button { font: inherit; padding: .3em 1.2em; margin: .5em 0 }
pre { background: #8882; padding: .7em; overflow-x: auto; white-space: pre-wrap; word-break: break-all } code { font-size: .9em }
"""
# The addresses are relative, so that the page also works behind a proxy that adds a prefix.
SCRIPT = """
const body = document.getElementById("body"), answer = document.getElementById("answer"), button = document.getElementById("send");
button.onclick = async () => {
  button.disabled = true;
  try {
    const reply = await fetch("predict", {method: "POST", headers: {"Content-Type": "application/json"}, body: body.value});
    const text = await reply.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2) } catch (e) {}
    answer.textContent = `${reply.status} ${reply.statusText}\\n${shown}`;
  } catch (e) { answer.textContent = `The server does not answer: ${e}` }
  button.disabled = false;
};
"""


def docs_page(
    title: str,
    description: str,
    facts: Mapping[str, Any],
    fields: Iterable[Mapping[str, str]],
    example: Mapping[str, Any] | None,
) -> str:
    """Return the page as HTML.

    Args:
        title: Title of the page.
        description: A text about the predictions of the model.
        facts: Facts about the model, such as `sweep` and `trial`.
        fields: The fields of a row, each with its `name`, `type` and `rule`.
        example: Body of a request; None if there is no example.
    """
    fields = list(fields)
    body = (
        example
        if example is not None
        else {"records": [dict.fromkeys(field["name"] for field in fields)]}
    )
    rows = body["records"][0] if example is not None else {}
    named = (
        f"<p>{_cells(', '.join(f'{name} {_fact(value)}' for name, value in facts.items()))}</p>"
        if facts
        else ""
    )
    table = _table(
        ("field", "type", "rule", "example"),
        [(*_of(field), _example(rows, field["name"])) for field in fields],
    )
    paths = _table(
        ("path", "answer"),
        [
            (
                "POST predict",
                'predictions for a list of records, {"records": [...]} or {"columns": {...}}',
            ),
            ("GET schema", "the fields of a row and of an answer, as JSON Schema"),
            ("GET example", "the body of an example request"),
            ("GET health", "whether the server runs, and which model it serves"),
            ("GET metrics", "metrics for Prometheus"),
            ("GET openapi.json", "this interface as OpenAPI, for tools"),
        ],
    )
    text = html.escape(json.dumps(body, indent=2, ensure_ascii=False))
    head = (
        '<meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{_cells(title)}</title><style>{STYLE}</style>'
    )
    form = (
        f'<textarea id="body" spellcheck="false" aria-label="request">{text}</textarea>\n'
        '<button id="send">Predict</button>'
    )
    parts = [
        f"<h1>{_cells(title)}</h1>\n<p>{_cells(description)}</p>\n{named}",
        (
            f'<h2>Try it</h2>\n{form}\n<pre id="answer" aria-live="polite">The answer appears '
            "here.</pre>"
        ),
        f"<h2>Fields of a row</h2>\n{table}",
        f"<h2>Paths</h2>\n{paths}",
    ]
    content = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n'
        f"<body>\n{content}\n<script>{SCRIPT}</script>\n"
        "</body></html>\n"
    )


def _fact(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _of(field: Mapping[str, str]) -> tuple[str, str, str]:
    return field["name"], field["type"], field["rule"]


def _example(rows: Mapping[str, Any], name: str) -> str:
    if name not in rows:
        return ""
    text = json.dumps(rows[name], ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [
        "".join(f"<th>{_cells(name)}</th>" for name in head),
        *("".join(f"<td>{_cells(cell)}</td>" for cell in row) for row in rows),
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _cells(text: Any) -> str:
    return html.escape(str(text))
