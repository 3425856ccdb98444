"""The study of a sweep: where the study is stored, the records in it, and the state of each trial."""
