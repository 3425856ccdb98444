"""Conformance suite for schedulers.

Subclass `SchedulerTests` in a test file, and return your scheduler from `scheduler`.

from random_stop import RandomStop
from sweeps.testing.pytest_schedulers import SchedulerTests

class TestRandomStop(SchedulerTests):
    def scheduler(self):
        return RandomStop(max_t=20)
"""

import copy
import itertools
import pickle
import random

from sweeps.core.trial import Action
from sweeps.search.schedulers import Decision, Scheduler
from sweeps.search.schedulers.scheduler import all_rungs
from sweeps.search.schedulers.simulated import SimulatedStudy

SEED = 3


class SchedulerTests:
    """Tests that every scheduler must pass. A subclass returns a new scheduler from `scheduler`."""

    def scheduler(self) -> Scheduler:
        """Return the scheduler to test."""
        raise NotImplementedError

    def test_it_has_all_attributes(self) -> None:
        """Check that the scheduler has all attributes that a scheduler needs."""
        scheduler = self.scheduler()
        assert isinstance(scheduler, Scheduler)
        assert scheduler.max_t is None or scheduler.max_t >= 1, (
            "`max_t` is the step at which a trial ends, or None"
        )
        assert scheduler.resource, "`resource` names what rungs count"

    def test_rungs_grow_and_lie_before_max_t(self) -> None:
        """Check that rungs are sorted, and that no rung lies at or after `max_t`."""
        scheduler = self.scheduler()
        for bracket in range(scheduler.bracket_count):
            rungs = list(itertools.islice(scheduler.rungs(bracket), 50))
            assert rungs == sorted(set(rungs)) and all(rung >= 1 for rung in rungs)
            assert scheduler.max_t is None or all(rung < scheduler.max_t for rung in rungs)

    def test_the_bracket_follows_from_seed_and_number(self) -> None:
        """Check that two schedulers with the same options draw the same bracket for a trial."""
        scheduler = self.scheduler()
        again = self.scheduler()
        brackets = [scheduler.bracket(SEED, number) for number in range(50)]
        assert brackets == [again.bracket(SEED, number) for number in range(50)]
        assert set(brackets) <= set(range(scheduler.bracket_count))

    def test_a_decision_repeats_after_a_crash(self) -> None:
        """Check that a new scheduler makes the same decision as the old scheduler.

        Decisions depend only on the study.
        """
        scheduler = self.scheduler()
        for view, trial, rung in self._situations(scheduler):
            decision = scheduler.decide(copy.deepcopy(view), trial, rung)
            assert scheduler.decide(copy.deepcopy(view), trial, rung) == decision, (
                "the second call with the same arguments makes another decision"
            )
            assert self.scheduler().decide(copy.deepcopy(view), trial, rung) == decision, (
                "a new instance of the scheduler makes another decision"
            )

    def test_decisions_use_declared_capabilities_only(self) -> None:
        """Check that STOP, PAUSE and EXPLOIT are returned only if they are declared.

        `decide` may return them only if `stops`, `pauses` or `perturbs` is True.
        """
        scheduler = self.scheduler()
        allowed = {
            Action.CONTINUE: True,
            Action.STOP: scheduler.stops,
            Action.PAUSE: scheduler.pauses,
            Action.EXPLOIT: scheduler.perturbs,
        }
        for view, trial, rung in self._situations(scheduler):
            decision = scheduler.decide(view, trial, rung)
            assert isinstance(decision, Decision) and allowed[decision.action], (
                f"{decision.action} is not a declared capability"
            )
            assert (decision.donor is not None) == (decision.action is Action.EXPLOIT)
            assert decision.donor is None or decision.donor in view.trials

    def test_a_decision_does_not_change_the_view(self) -> None:
        """Check that `decide` does not change the `StudyView` that it receives."""
        scheduler = self.scheduler()
        for view, trial, rung in self._situations(scheduler):
            before = copy.deepcopy(view.trials)
            scheduler.decide(view, trial, rung)
            assert view.trials == before

    def test_only_a_paused_trial_continues(self) -> None:
        """Check that `next_paused` returns the number of a paused trial or None."""
        scheduler = self.scheduler()
        for view, trial, rung in self._situations(scheduler):
            assert scheduler.next_paused(view) is None
            view.pause(trial, rung)
            assert scheduler.next_paused(view) in (None, trial)

    def test_it_can_be_pickled(self) -> None:
        """Check that a scheduler can be pickled, and keeps its `max_t`."""
        assert pickle.loads(pickle.dumps(self.scheduler())).max_t == self.scheduler().max_t

    def _situations(self, scheduler: Scheduler) -> list[tuple[SimulatedStudy, int, int]]:
        """Return (study, trial number, rung that the trial has reached) tuples.

        The trials' values are random.
        """
        rng = random.Random(SEED)
        situations = []
        for minimize in (True, False):
            for size, rung in itertools.product(
                (1, 2, 5, 12), itertools.islice(all_rungs(scheduler), 4)
            ):
                study = SimulatedStudy(SEED, minimize)
                for number in range(size):
                    study.start(number, scheduler.bracket(SEED, number))
                for number in range(size):
                    values = {step: rng.random() for step in range(1, rung + 1)}
                    study.report(number, values, saves=True)
                    # A trial meets only the rungs of its bracket.
                    if rung in scheduler.rungs(study.trials[number].bracket):
                        situations.append((copy.deepcopy(study), number, rung))
        return situations
