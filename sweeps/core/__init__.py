"""Types and helpers that every other folder uses.

They cover errors, trials, resources, references to user code, and the files of a sweep's folder.
"""
