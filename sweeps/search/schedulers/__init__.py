"""Schedulers: what happens to a trial at a rung. One file each; `base` has the port that a scheduler of your own implements."""

from sweeps.core.trial import Action
from sweeps.search.schedulers.base import Decision, Scheduler
from sweeps.search.schedulers.view import StudyView, TrialView

__all__ = ["Action", "Decision", "Scheduler", "StudyView", "TrialView"]
