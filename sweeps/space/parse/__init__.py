"""Read a space file, find its problems, and build the `Space`."""
