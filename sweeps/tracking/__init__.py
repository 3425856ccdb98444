"""Trackers record a sweep in MLflow, in files or on a web page.

The controller publishes events to them through a hub.
"""

from sweeps.tracking.hub import TrackerHub
from sweeps.tracking.mlflow.mlflow_tracker import MlflowTracker, default_uri
from sweeps.tracking.mlflow.sweep_runs import Destination
from sweeps.tracking.mlflow.tracker_process import TrackerProcess
from sweeps.tracking.tracker import Tracker

__all__ = ["Destination", "MlflowTracker", "Tracker", "TrackerHub", "TrackerProcess", "default_uri"]
