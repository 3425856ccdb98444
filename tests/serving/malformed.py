"""Malformed requests, and the page of their answers: `python -m tests.serving.malformed` writes the
page.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "malformed_requests.md"
COMMAND = "python -m tests.serving.malformed"
MAX_BYTES, MAX_ROWS = 2000, 5
GOOD = {
    "rooms": 2,
    "city": "Lyon",
    "area": 30.5,
    "garden": True,
    "built": "1990-05-01",
    "heating": "gas",
}


@dataclass(frozen=True)
class Case:
    """One request.

    Attributes:
        what: The mistake, in a few words.
        body: Body of the request. Anything but bytes is sent as JSON.
        status: Status of the answer.
        says: Text that the answer must contain.
    """

    what: str
    body: Any
    status: int = 422
    says: str = ""
    method: str = "POST"
    path: str = "/predict"
    headers: dict[str, Any] = field(default_factory=dict)


def one(**changes: Any) -> dict[str, Any]:
    return {"records": [GOOD | changes]}


def without(*names: str) -> dict[str, Any]:
    return {"records": [{k: v for k, v in GOOD.items() if k not in names}]}


CASES: tuple[Case, ...] = (
    Case("nothing", b"", 400),
    Case("not JSON", b"rooms=2&city=Lyon", 400),
    Case("incomplete JSON", b'{"records": [{"rooms": 2', 400),
    Case("an extra comma", b'{"records": [],}', 400),
    Case("two documents", b"[] []", 400),
    Case("bytes that are not UTF-8", b'{"records": [{"city": "\xff\xfe"}]}', 400),
    Case("half of a surrogate pair", b'{"records": [{"city": "\\ud800"}]}', 400),
    Case("NaN, which JSON does not have", b'{"records": [{"rooms": NaN}]}', 400),
    Case("very deep nesting", b"[" * 1900, 400),
    Case("null", b"null"),
    Case("a number", b"3"),
    Case("a text", b'"rows"'),
    Case("an empty object", {}),
    Case("a record alone, not in a list", GOOD),
    Case("records that are not a list", {"records": GOOD}),
    Case("records that are null", {"records": None}),
    Case("a record that is a list", {"records": [[2, "Lyon"]]}),
    Case("a record that is null", {"records": [GOOD, None]}),
    Case("an empty record", {"records": [{}]}, says="rooms"),
    Case("a missing field", without("area"), says="area"),
    Case("two missing fields", without("area", "city"), says="city"),
    Case("a field that the second record lacks", {"records": [GOOD, {"rooms": 1}]}, says="city"),
    Case(
        "a field in capitals", {"records": [{k.upper(): v for k, v in GOOD.items()}]}, says="rooms"
    ),
    Case("text for a number", one(rooms="two"), says="rooms"),
    Case("a number in a text", one(rooms="2"), says="rooms"),
    Case("an empty text for a number, which is missing", one(area=""), 200),
    Case("true for a number", one(rooms=True), says="rooms"),
    Case("a list for a number", one(area=[30.5]), says="area"),
    Case("an object for a number", one(area={"value": 30.5}), says="area"),
    Case(
        "a number that is too large for a float", b'{"records": [{"rooms": 1e999}]}', 422, "rooms"
    ),
    Case("an integer that is too large for a float", one(rooms=10**400), says="rooms"),
    Case("a number for text", one(city=7), says="city"),
    Case("false for text", one(city=False), says="city"),
    Case("a list for text", one(city=["Lyon"]), says="city"),
    Case("a number for a boolean", one(garden=1), says="garden"),
    Case("text for a boolean", one(garden="yes"), says="garden"),
    Case("a word for a date", one(built="soon"), says="built"),
    Case("an impossible date", one(built="2021-02-30"), says="built"),
    Case("a number for a date", one(built=1990), says="built"),
    Case("an empty text for a date, which is missing", one(built=""), 200),
    Case(
        "a time zone that training did not have",
        one(built="1990-05-01T00:00:00+02:00"),
        says="built",
    ),
    Case("a number for a category", one(heating=3), says="heating"),
    Case("an object for a category", one(heating={}), says="heating"),
    Case(
        "three values wrong in two rows",
        {"records": [GOOD | {"rooms": "x", "city": 1}, GOOD | {"garden": "no"}]},
        says="garden",
    ),
    Case("a value too long to show", one(rooms="x" * 500), says="rooms"),
    Case("too many rows", {"records": [GOOD] * 6}, 413),
    Case("a body over the limit", one(city="x" * 3000), 413),
    Case(
        "a body over the limit, in parts, without a length",
        [b"[" + b" " * 1000, b" " * 1500, b"]"],
        413,
    ),
    Case("a length over the limit", b"[]", 413, headers={"content-length": "999999999"}),
    Case("CSV", b"rooms,city\n2,Lyon\n", 415, headers={"content-type": "text/csv"}),
    Case("a form", b"rooms=2", 415, headers={"content-type": "application/x-www-form-urlencoded"}),
    Case("a compressed body", b"\x1f\x8b", 415, headers={"content-encoding": "gzip"}),
    Case("GET", b"", 405, method="GET"),
    Case("an unknown path", one(), 404, path="/predicts"),
)


def shown(case: Case) -> str:
    """Return a request as the page shows it."""
    raw = (
        case.body if isinstance(case.body, bytes) else json.dumps(case.body, default=repr).encode()
    )
    text = raw.decode(errors="backslashreplace").replace("\n", "\\n").replace("|", "\\|")
    text = text if len(text) <= 110 else text[:109] + "…"
    head = f"{case.method} {case.path} " if (case.method, case.path) != ("POST", "/predict") else ""
    head += "".join(f"{k}: {v}; " for k, v in case.headers.items())
    return f"`{head}{text}`" if head + text else ""


def page(answers: dict[str, tuple[int, Any]]) -> str:
    """Return the page as Markdown."""
    head = f"""# Answers to malformed requests

<!-- Written by `{COMMAND}`. tests/serving/test_malformed_requests.py checks it. -->

This page shows {len(answers)} malformed requests to `/predict` of a served bundle, \
and the answer to each. No answer has status
500. The server accepts requests of at most {MAX_BYTES} bytes and {MAX_ROWS} rows. This request is
correct: `{json.dumps({"records": [GOOD]})}`.

| mistake | request | status | answer |
|---|---|---|---|
"""
    lines = []
    for case in CASES:
        status, answer = answers[case.what]
        text = (
            json.dumps(answer.get("detail", answer), ensure_ascii=False)
            if isinstance(answer, dict)
            else str(answer)
        )
        text = text if len(text) <= 330 else text[:329] + "…"
        lines.append(
            f"| {case.what} | {shown(case)} | {status} | "
            f"`{text.replace('|', chr(92) + '|').replace('`', chr(39))}` |\n"
        )
    return head + "".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "bundle"))
    from tests.serving.test_malformed_requests import answered, application

    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(answered(application(Path(folder)))), encoding="utf-8")
