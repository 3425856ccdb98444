"""Report of the pool about its resources and trials."""

import enum
from dataclasses import dataclass, field


class Stage(enum.Enum):
    """Stage of an active trial. A trial is active from its start to its end."""

    PREPARING = "preparing data"
    WAITING = "waiting for workers"
    STARTING = "starting workers"
    TRAINING = "training"


@dataclass(frozen=True)
class TrialUsage:
    """State of an active trial.

    Attributes:
        stage: Current stage of the trial.
        rung: Step at which the trial waits for a decision; None if it does not wait.
        worker_seconds: Sum of the seconds over its workers: ten seconds on two workers are 20.
        silent: Text about the ranks that have not reported for a long time; "" if there are none.
        missing: If the trial does not fit on the cluster, a text that says for which nodes it
            waits, and since when. Otherwise "".
    """

    stage: Stage
    rung: int | None = None
    worker_seconds: float = 0.0
    silent: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Usage:
    """Resources in use, and the active trials.

    The pool sends this object to the driver.

    Attributes:
        total: All resources of the cluster.
        busy: Resources that trials and fits hold.
        warm: Resources that idle workers and closing workers hold.
        fits: Number of fits of preprocessing chains that succeeded.
        trials: The active trials, by id.
        nodes: Host and address of each living node, by the node's id.
    """

    total: dict[str, float]
    busy: dict[str, float] = field(default_factory=dict)
    warm: dict[str, float] = field(default_factory=dict)
    fits: int = 0
    trials: dict[str, TrialUsage] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
