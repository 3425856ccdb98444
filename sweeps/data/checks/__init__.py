"""Check a sweep's data, labels and metrics before the first trial starts."""
