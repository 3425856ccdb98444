"""Run the command line with `python -m sweeps.cli`."""

from sweeps.cli import main

if __name__ == "__main__":
    main()
