"""MLflow: the tracker and what it writes, the views and the server of its UI, and the Model Registry."""
