"""The built-in samplers and schedulers pass the conformance suites that users can run on theirs."""

from __future__ import annotations

import importlib.util
from typing import ClassVar

import pytest

from sweeps.core.plugins import plugin_registry
from sweeps.search.schedulers import Scheduler
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.median import Median
from sweeps.search.schedulers.none import NoScheduler
from sweeps.search.schedulers.pbt import Pbt
from sweeps.testing.pytest_samplers import SamplerTests
from sweeps.testing.pytest_schedulers import SchedulerTests
from tests.search.pausing import PauseAll


class TestAsha(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return Asha(27)


class TestPromotion(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return Asha(27, type="promotion")


class TestHyperband(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return Hyperband(27)


class TestHyperbandPromotion(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return Hyperband(27, type="promotion")


class TestMedian(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return Median(9, 2, 3)


class TestPbt(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return Pbt(3, max_t=12, quantile_fraction=0.5)


class TestNoScheduler(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return NoScheduler(9)


class TestPauseAll(SchedulerTests):
    def scheduler(self) -> Scheduler:
        return PauseAll()


class TestTpe(SamplerTests):
    algorithm = "tpe"
    options: ClassVar = {"n_startup_trials": 4}


class TestGp(SamplerTests):
    algorithm = "gp"
    options: ClassVar = {"n_startup_trials": 4}


class TestRandom(SamplerTests):
    algorithm = "random"


class TestGrid(SamplerTests):
    algorithm = "grid"
    grids_only = True


class TestQmc(SamplerTests):
    algorithm = "qmc"


@pytest.mark.skipif(importlib.util.find_spec("cmaes") is None, reason="cmaes is not installed")
class TestCmaes(SamplerTests):
    algorithm = "cmaes"
    options: ClassVar = {"popsize": 4}


class TestNsga2(SamplerTests):
    algorithm = "nsga2"
    options: ClassVar = {"population_size": 4}


def test_every_built_in_sampler_and_scheduler_is_tested_here() -> None:
    classes = [value for name, value in globals().items() if name.startswith("Test")]
    samplers = {one.algorithm for one in classes if issubclass(one, SamplerTests)}
    schedulers = {type(one().scheduler()) for one in classes if issubclass(one, SchedulerTests)}
    assert samplers == set(plugin_registry.names("sampler"))
    assert schedulers >= {
        plugin_registry.built_in("scheduler", name) for name in plugin_registry.names("scheduler")
    }
