"""Data of a sweep: check it, read it, split it, prepare it. Ray is imported only to read rows or to fit one of Ray's preprocessors."""
