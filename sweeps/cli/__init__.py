"""The command line."""

from sweeps.cli.commands import main

__all__ = ["main"]
