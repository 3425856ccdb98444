"""Every malformed request of the table: its status, the field it names, and never a 500."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.serving.limits import RequestLimits
from sweeps.serving.prediction_app import make_app
from tests.serving import malformed, served
from tests.serving.asking import ask


def application(folder: Path | None = None) -> Any:
    return make_app(served.bundle(), RequestLimits(malformed.MAX_BYTES, malformed.MAX_ROWS))


def answered(app: Any) -> dict[str, tuple[int, Any]]:
    """Each case -> (status, answer)."""

    async def all_of_them() -> dict[str, tuple[int, Any]]:
        answers = {}
        for case in malformed.CASES:
            parts = isinstance(case.body, list) and case.body and isinstance(case.body[0], bytes)
            body = (
                case.body
                if parts or isinstance(case.body, bytes)
                else json.dumps(case.body).encode()
            )
            answers[case.what] = await ask(app, case.path, body, case.method, case.headers)
        return answers

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module")
def answers() -> Any:
    return answered(application())


@pytest.mark.parametrize("case", malformed.CASES, ids=lambda case: case.what)
def test_each_malformed_request_gets_its_answer(answers: Any, case: Any) -> None:
    status, answer = answers[case.what]
    assert status == case.status, answer
    if status in (400, 413, 415, 422):
        assert all(problem["rule"] for problem in answer["detail"])
    if case.says:
        assert case.says in [
            problem.get("field") for problem in answer["detail"]
        ] or f"`{case.says}`" in str(answer), answer


def test_there_are_fifty_and_a_good_one_is_answered() -> None:
    assert len({case.what for case in malformed.CASES}) == len(malformed.CASES) >= 50
    body = json.dumps({"records": [malformed.GOOD]}).encode()
    status, answer = asyncio.run(ask(application(), "/predict", body))
    assert status == 200 and answer["predictions"][0]["prediction"] in ("yes", "no")


def test_the_page_is_the_table(answers: Any) -> None:
    assert malformed.PAGE.read_text(encoding="utf-8") == malformed.page(answers), (
        f"it is out of date; renew it: {malformed.COMMAND}"
    )
