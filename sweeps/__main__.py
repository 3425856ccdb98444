"""`python -m sweeps`: the command line, where the command `sweeps` is not on the path."""

from __future__ import annotations

from sweeps.cli import main

if __name__ == "__main__":
    main()
