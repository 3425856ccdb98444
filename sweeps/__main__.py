"""Run the command line with `python -m sweeps`.

This also works if the command `sweeps` is not on `PATH`.
"""

from sweeps.cli import main

if __name__ == "__main__":
    main()
