"""The command line: one module for each group of verbs."""

# Importing a module adds its verbs to `main`.
from sweeps.cli import export, maintain, predict, run, show, space  # noqa: F401
from sweeps.cli.group import main

__all__ = ["main"]
