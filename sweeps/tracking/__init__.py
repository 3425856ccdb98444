"""A sweep in MLflow: what is written (`tracker`), what MLflow's UI shows of it (`views`), and that UI, served (`ui`)."""

from sweeps.tracking.tracker import Tracker, default_uri

__all__ = ["Tracker", "default_uri"]
