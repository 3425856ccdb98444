"""The built-in trackers pass the conformance suite that users can run on theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.testing.pytest_trackers import TrackerTests
from sweeps.tracking import Destination, MlflowTracker, default_uri
from sweeps.tracking.jsonl import JsonLinesTracker
from sweeps.tracking.tensorboard import TensorBoardTracker

pytestmark = pytest.mark.timeout(120)


class TestJsonLinesTracker(TrackerTests):
    def create_tracker(self, folder: Any) -> Any:
        return JsonLinesTracker()

    def ended_trials(self, sweep_folder: Any) -> Any:
        lines = map(json.loads, SweepFolder(sweep_folder).events.read_text().splitlines())
        return [
            int(line["trial"])
            for line in lines
            if line["type"] == "TrialEnded" and line["state"] != "INTERRUPTED"
        ]


class TestTensorBoardTracker(TrackerTests):
    def create_tracker(self, folder: Any) -> Any:
        return TensorBoardTracker()


@pytest.mark.integration
@pytest.mark.usefixtures("empty_database")
class TestMlflowTracker(TrackerTests):
    def create_tracker(self, folder: Any) -> Any:
        return MlflowTracker(
            Destination(
                default_uri(folder), folder, "sample", "sample-20231114-221320", 1_700_000_000.0
            )
        )
