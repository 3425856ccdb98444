"""The machine: its resources, processes, threads and log, and clean-up after a crash."""
