"""Texts for users: hints, suggestions, durations and tables, without secrets."""
