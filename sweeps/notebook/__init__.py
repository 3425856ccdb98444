"""Show a running sweep below a cell of a notebook, and in a terminal."""
