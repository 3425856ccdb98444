"""Read, split and preprocess data as a stream, for `data.ingest: stream`.

No process ever holds a whole split.
"""
