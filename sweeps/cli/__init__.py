"""The command line. Each module defines one verb or several related verbs.

Examples are `ls` and `show`.
"""

# Importing a module adds its verbs to `main`.
from . import (  # noqa: F401
    compare,
    control_commands,
    export_command,
    init,
    maintain,
    predict_command,
    run,
    show,
    space,
)
from .group import main

__all__ = ["main"]
