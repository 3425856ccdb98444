"""After an attempt, a trial ends or is tried again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import LOST, State
from sweeps.execution.gangs.pool_worker import WorkerLost
from sweeps.execution.messages import Ended
from sweeps.execution.trials.retry import MOST_BLAMELESS, Retry, decide_after_attempt
from sweeps.study.events import FailureCounts

losses = st.builds(WorkerLost, st.just("died"), st.booleans())
ends = st.sampled_from(
    [
        Ended(0, State.COMPLETE),
        Ended(0, State.PRUNED),
        Ended(0, State.FAIL, "Traceback\nOSError: no"),
        Ended(0, State.FAIL, "Traceback\nOSError: no", retry=True),
    ]
)


@given(st.lists(losses | ends, min_size=1), st.integers(0, 5), st.sampled_from([(), (LOST,)]))
def test_a_trial_is_tried_again_within_its_limits_only(
    outcomes: Any, max_failures: Any, retry_on: Any
) -> None:
    counts = FailureCounts()
    for outcome in outcomes:
        following = decide_after_attempt(outcome, counts, max_failures, retry_on)
        if isinstance(following, Ended):
            break
        assert isinstance(outcome, WorkerLost) or outcome.retry
        assert following.counts.failures + following.counts.blameless == (
            counts.failures + counts.blameless + 1
        )
        counts = following.counts
        assert counts.failures <= max_failures and counts.blameless < MOST_BLAMELESS
        assert following.reason in ("died", "OSError: no")
    else:
        return
    if isinstance(outcome, Ended) and not outcome.retry:
        assert following is outcome
        return
    assert following.state is State.FAIL and str(following.error)
    blameless = isinstance(outcome, WorkerLost) and outcome.blameless
    if isinstance(outcome, WorkerLost) and not blameless and not retry_on:
        assert f"`limits.retry_on` does not list `{LOST}`" in str(following.error)
    elif blameless:
        assert counts.blameless == MOST_BLAMELESS - 1
    else:
        assert counts.failures == max_failures


def test_a_single_failure_without_retries_is_reported_as_it_is() -> None:
    ended = Ended(0, State.FAIL, "Traceback\nOSError: no", retry=True)
    following = decide_after_attempt(ended, FailureCounts(), 0, ())
    assert isinstance(following, Ended) and following.error == ended.error


def test_errors_of_several_attempts_name_the_limit() -> None:
    ended = Ended(0, State.FAIL, "Traceback\nOSError: no", retry=True)
    following = decide_after_attempt(ended, FailureCounts(failures=2), 2, ())
    assert isinstance(following, Ended) and following.error == (
        "3 attempts failed with an exception that `limits.retry_on` lists, and "
        "`limits.max_failures` allows only 2; the last exception:\nTraceback\nOSError: no"
    )
    assert isinstance(decide_after_attempt(ended, FailureCounts(failures=1), 2, ()), Retry)
