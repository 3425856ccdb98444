"""The study of a sweep: its storage, its records, and the state of each trial."""
