"""A sweep in MLflow: what is written (`tracker`, `apart`), what MLflow's UI shows of it (`views`), and that UI, served (`ui`)."""

from sweeps.tracking.mlflow.tracker import Tracker, default_uri
from sweeps.tracking.mlflow.tracker_process import TrackerProcess

__all__ = ["Tracker", "TrackerProcess", "default_uri"]
