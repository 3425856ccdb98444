"""Exceptions that end a training loop."""


class LoopStopped(BaseException):
    """Raised by `report` to end a loop. All ranks raise this exception at the same step.

    The base class is not Exception, so that `except Exception` in a loop does not catch this
    exception.

    Args:
        finished: True if the trial has reached its last step. Otherwise, the scheduler has stopped
            it. The trainer `command` reads this attribute.
    """

    def __init__(self, finished: bool = False):
        super().__init__()
        self.finished = finished


class MetricMissing(ValueError):
    """Raised if the first report of a trial lacks the objective's metric.

    Often, the metric has another name in the loop.
    """

    place = "objective.metric"


class CheckpointIgnored(ValueError):
    """Raised under PBT if a loop does not continue from its checkpoint."""

    place = "scheduler.name"
