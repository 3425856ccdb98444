"""Fixtures for the tests of workers."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from sweeps.core import loop_context
from sweeps.execution.gangs import worker_processes
from sweeps.execution.gangs.pool_worker import PoolWorker
from sweeps.execution.worker import worker
from tests.execution.fake_ray import NODE, FakeRay


@pytest.fixture(autouse=True)
def no_loop_afterwards() -> Iterator[None]:
    """End the training loop that a test has begun in this process, as a worker does."""
    yield
    loop_context.set_current(None)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    fake_ray = FakeRay()
    monkeypatch.setattr(worker, "start", fake_ray.start)
    monkeypatch.setattr(worker_processes, "is_alive", lambda pid: True)
    context = SimpleNamespace(current_actor=None, get_node_id=lambda: "here")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "nodes", lambda: [{**NODE, "NodeID": "here", "Resources": {}}])
    monkeypatch.setattr(ray, "kill", fake_ray.killed.append)

    async def call(self: PoolWorker, method: str, *arguments: Any) -> None:
        fake_ray.calls.append((method, self.number - 1))

    monkeypatch.setattr(PoolWorker, "call", call)
    yield fake_ray
