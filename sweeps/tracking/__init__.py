"""A sweep in MLflow: what is written (`tracker`, `apart`), what MLflow's UI shows of it (`views`), and that UI, served (`ui`)."""

from sweeps.tracking.apart import TrackerApart
from sweeps.tracking.tracker import Tracker, default_uri

__all__ = ["Tracker", "TrackerApart", "default_uri"]
