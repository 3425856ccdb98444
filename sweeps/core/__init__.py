"""Types and helpers that every other folder uses: errors, trials, resources, references to user code, and the files of a sweep's folder."""
