"""`python -m sweeps.cli`."""

from sweeps.cli.commands import main

if __name__ == "__main__":
    main()
