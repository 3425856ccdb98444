"""MLflow: the tracker, the contents of runs, saved views and the server of MLflow's UI, and the Model Registry."""
