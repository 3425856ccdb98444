"""The MLflow tracker, the model registry, and MLflow's UI."""
