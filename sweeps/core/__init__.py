"""What every other folder builds on: errors, trials, resources, references, and the files of a sweep's folder."""
