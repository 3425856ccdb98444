"""Types and helpers that every other folder uses: errors, trials, resources, references, and the files of a sweep's folder."""
