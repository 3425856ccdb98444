"""Decide about trials as a driver does, without a pool."""

from __future__ import annotations

import time

from sweeps.controller.decide import decide
from sweeps.controller.driver_commands import Continue, End, Exploit, PauseTrial
from sweeps.controller.driver_state import DriverState, Policy
from sweeps.core.trial import Action, State, format_trial_id
from sweeps.execution.messages import TrialUpdate
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import TrialDecided, TrialPaused


def decided(loop: SearchLoop, number: int, rung: int) -> Action:
    """Decide about a trial at a rung, and record that it continues or is paused.

    The end of a trial that stops is not recorded.
    """
    driver = DriverState(loop.store.sweep, loop.view, loop.queue, loop.interrupted)
    policy = Policy.of(loop.space, loop.scheduler, loop.store.sweep)
    (command,) = decide(driver, TrialUpdate(format_trial_id(number), rung=rung), policy)
    match command:
        case Continue(is_new=is_new):
            if is_new:
                loop.store.append(TrialDecided(time.time(), number, rung))
            return Action.CONTINUE
        case PauseTrial():
            loop.store.append(TrialPaused(time.time(), number, rung))
            return Action.PAUSE
        case Exploit(donor=donor):
            event = loop.exploit(number, donor, rung)
            assert event is not None
            loop.store.append(event)
            return Action.EXPLOIT
        case End(state=State.PRUNED):
            return Action.STOP
    raise AssertionError(command)
