"""`serve` against its own OpenAPI, by schemathesis: good and bad requests, over HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.serving.limits import RequestLimits
from tests.serving.sockets import answer, request, running

HANG_SECONDS = 10
EXAMPLES = int(os.environ.get("SWEEPS_FUZZ_EXAMPLES", "50"))


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with running(limits=RequestLimits(max_bytes=20_000, max_rows=50)) as server:
        yield server


@pytest.fixture(scope="module")
def requests(server: Any) -> Any:
    """A request to any path of the schema, as it should be or not. schemathesis takes seconds to
    import.
    """
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    results = list(schema.get_all_operations())
    assert all(isinstance(result, Ok) for result in results)
    operations = {result.ok().path: result.ok() for result in results if isinstance(result, Ok)}
    assert set(operations) == {"/predict", "/health", "/schema", "/example", "/metrics"}
    predict = operations["/predict"]
    bodies = (
        predict.as_strategy(generation_mode=mode)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    )
    return st.one_of(*bodies, *(operation.as_strategy() for operation in operations.values()))


@pytest.fixture(scope="module")
def checks() -> Any:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    return [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]


@pytest.mark.integration
@pytest.mark.timeout(120 + EXAMPLES)
def test_r11_whatever_is_sent_is_answered_as_its_openapi_says(
    server: Any,
    requests: Any,
    checks: Any,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(requests)
    def ask(case: Any) -> None:
        begin = time.monotonic()
        response = case.call(timeout=HANG_SECONDS)
        case.validate_response(response, checks=checks)
        assert time.monotonic() - begin < HANG_SECONDS

    ask()
    assert answer(server.connect(request()))[0] == 200
    assert "Traceback" not in capfd.readouterr().err
    assert not [record for record in caplog.records if record.exc_info]
