"""Conformance suite for samplers.

Subclass `SamplerTests` in a test file, and name your sampler as in the space file.

from sweeps.testing.pytest_samplers import SamplerTests

class TestHalving(SamplerTests):
    algorithm = "halving:Halving"
"""

import tempfile
from pathlib import Path
from typing import Any, ClassVar

from sweeps.core.trial import Report, State, Trial
from sweeps.search.search_loop import SearchLoop
from sweeps.space import Space, load
from sweeps.study.events import TrialReported

SPACE = """\
name: suite
trainer: {{loop: "sweeps.testing.pytest_samplers:no_loop"}}
objective: {{metric: loss, goal: minimize}}
search: {search}
scheduler: {{name: none, max_t: 9}}
limits: {{max_trials: 200}}
space:
  params:
    x: {{uniform: [0.0, 1.0]}}
    y: {{loguniform: [1.0e-3, 1.0]}}
    n: {{randint: [1, 9]}}
    kind: {{choice: [a, b]}}
    cell: {{grid: [p, q]}}
    extra: {{uniform: [0, 1], when: {{params.kind: b}}}}
"""
GRID = "{params: {other: {grid: [1, 2, 3, 4, 5, 6, 7, 8]}, cell: {grid: [p, q]}}}"


class SamplerTests:
    """Tests that every sampler must pass.

    Attributes:
        algorithm: The sampler, in the form of `search.algorithm` in a space file.
        options: The sampler's options, in the form of `search.options`.
        trials: Number of trials that each test runs.
        grids_only: True if the sampler accepts only spaces without sampled dimensions.
    """

    algorithm: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    trials: ClassVar[int] = 14
    grids_only: ClassVar[bool] = False

    def test_it_suggests_values_within_the_space(self) -> None:
        """Check that suggested values lie within their domains."""
        for trial in self._run():
            if not self.grids_only:
                assert (
                    0 <= trial.params["x"] <= 1
                    and 1e-3 <= trial.params["y"] <= 1
                    and trial.params["n"] in range(1, 9)
                )
                assert ("extra" in trial.params) == (trial.params["kind"] == "b"), (
                    "a condition decides whether a dimension is there"
                )

    def test_grid_cells_are_visited_evenly(self) -> None:
        """Check that the numbers of trials of any two grid cells differ by at most one."""
        cells = [trial.params["cell"] for trial in self._run()]
        assert abs(cells.count("p") - cells.count("q")) <= 1

    def test_the_same_seed_suggests_the_same(self) -> None:
        """Check that two sweeps with the same seed get the same suggestions."""
        first, second = (self._run() for _ in range(2))
        assert [t.params for t in first] == [t.params for t in second]

    def test_a_resumed_sweep_suggests_the_same(self) -> None:
        """Check that a new driver gets the same suggestions as the old driver would have got.

        Suggestions depend only on the study, the seed and the trial number.
        """
        undisturbed = self._run()
        resumed = self._run(resume_every=4)
        assert [t.params for t in undisturbed] == [t.params for t in resumed]

    def _search(self, folder: Path) -> SearchLoop:
        """Open the study in a folder, which is created if it does not exist."""
        return SearchLoop.open(folder, self._space(folder))

    def _space(self, folder: Path) -> Space:
        """Write a space file with the sampler into a folder and load it."""
        search = {"algorithm": self.algorithm, "seed": 3, "options": self.options}
        text = SPACE.format(search=repr(search).replace("True", "true").replace("False", "false"))
        if self.grids_only:
            text = text.partition("space:")[0] + f"space: {GRID}\n"
        file = folder / "suite.yaml"
        file.write_text(text)
        return load(file)

    def _run(self, resume_every: int = 0) -> list[Trial]:
        """Run trials, three at a time, in a new folder, and return the trials.

        Args:
            resume_every: Open the sweep again after this number of trials, as a resume does; 0 for
                never.
        """
        with tempfile.TemporaryDirectory() as name:
            search = self._search(Path(name))
            trials: list[Trial] = []
            for number in range(self.trials):
                if resume_every and number and number % resume_every == 0:
                    search = self._search(Path(name))
                trial = search.ask()
                assert trial is not None
                trials.append(trial)
                if number >= 2:  # Three trials run at the same time.
                    _finish(search, trials[number - 2])
        return trials


def _finish(search: SearchLoop, trial: Trial) -> None:
    """Report a loss that depends on `x` and `cell`, and end the trial."""
    loss = trial.params.get("x", 0.5) + (0.1 if trial.params["cell"] == "p" else 0.0)
    search.store.append(
        TrialReported(0.0, trial.number, (Report(9, {"loss": loss}, 0.0),), seconds=1.0)
    )
    search.store.end(trial.number, State.COMPLETE)


def no_loop(config: dict[str, Any]) -> None:
    """Training loop that the space file of these tests names. The tests never call it."""
