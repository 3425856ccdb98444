"""Types and helpers that every other folder uses.

- this folder: trials, results, metrics, resources, errors
- files: the files of a sweep's folder and store
- host: the machine
- plugins: references to user code, and plug-ins
- text: texts for users
"""
