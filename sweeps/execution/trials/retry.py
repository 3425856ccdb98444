"""Decide whether a trial is tried again after an attempt. Pure functions, no I/O."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from sweeps.core.trial import LOST, State
from sweeps.execution.gangs.pool_worker import WorkerLost
from sweeps.execution.messages import Ended
from sweeps.study.events import FailureCounts

# A trial fails after this many consecutive attempts without a report that failed for a cause
# outside the trial.
MOST_BLAMELESS = 10


@dataclass(frozen=True)
class Retry:
    """Decision to try the trial again.

    Attributes:
        reason: Reason why the attempt ended, in one line.
        counts: The failed attempts so far.
    """

    reason: str
    counts: FailureCounts


def decide_after_attempt(
    outcome: Ended | WorkerLost, counts: FailureCounts, max_failures: int, retry_on: Collection[str]
) -> Ended | Retry:
    """Return how the trial ends, or that it is tried again.

    Args:
        outcome: Result of the attempt.
        counts: The failed attempts before this one.
        max_failures: Largest number of failed attempts with which a trial is still tried again
            (`limits.max_failures`).
        retry_on: Failures after which a trial is tried again; see `Job.retry_on`.
    """
    if isinstance(outcome, WorkerLost) and outcome.blameless:
        counts = replace(counts, blameless=counts.blameless + 1)
        if counts.blameless < MOST_BLAMELESS:
            return Retry(str(outcome), counts)
        return failure(
            f"the trial's workers or its data were lost {counts.blameless} times in a row, with no "
            f"report in between; the last loss: {outcome}"
        )
    if isinstance(outcome, WorkerLost) and LOST not in retry_on:
        return failure(
            f"a worker process died, and `limits.retry_on` does not list `{LOST}`: {outcome}"
        )
    if isinstance(outcome, Ended) and not outcome.retry:
        return outcome
    counts = replace(counts, failures=counts.failures + 1)
    error = str(outcome) if isinstance(outcome, WorkerLost) else str(outcome.error)
    if counts.failures <= max_failures:
        return Retry(error.rstrip().rpartition("\n")[2], counts)
    allowed = f"`limits.max_failures` allows only {max_failures}"
    if isinstance(outcome, WorkerLost):
        return failure(
            f"a worker process died in {counts.failures} attempts, and {allowed}; the last loss: "
            f"{error}"
        )
    if counts.failures == 1:
        return failure(error)
    return failure(
        f"{counts.failures} attempts failed with an exception that `limits.retry_on` lists, and "
        f"{allowed}; the last exception:\n{error}"
    )


def failure(error: str) -> Ended:
    """Return the end of a trial that fails with this error."""
    return Ended(0, State.FAIL, error)
