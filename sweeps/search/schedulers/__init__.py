"""Schedulers, which decide what happens to a trial at a rung.

`scheduler` defines the interface of built-in and user-defined schedulers.
"""

from sweeps.core.trial import Action

from .scheduler import Decision, Scheduler
from .view import StudyView, TrialView

__all__ = ["Action", "Decision", "Scheduler", "StudyView", "TrialView"]
