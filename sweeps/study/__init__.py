"""The study of a sweep: where it is stored, its records, and the state of each trial."""
