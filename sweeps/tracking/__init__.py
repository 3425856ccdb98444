"""Trackers record a sweep in MLflow, in files or on a web page.

The controller publishes events to them through a hub.
"""

from .hub import TrackerHub
from .mlflow.mlflow_tracker import MlflowTracker, default_uri
from .mlflow.sweep_runs import Destination
from .mlflow.tracker_process import TrackerProcess
from .tracker import Tracker

__all__ = ["Destination", "MlflowTracker", "Tracker", "TrackerHub", "TrackerProcess", "default_uri"]
