"""Check, read, split and preprocess the data of a sweep.

Ray is imported only to read rows or to fit one of Ray's preprocessors.
"""
