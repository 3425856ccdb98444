"""Run a training loop in one worker process, and report to the pool."""
