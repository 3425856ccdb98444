"""MLflow: the tracker, the contents of runs, and the Model Registry."""
