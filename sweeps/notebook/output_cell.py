"""Find out whether this process is the kernel of a notebook.

IPython is never imported for this purpose.
"""

import logging
import sys
import warnings


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, such as Jupyter's.

    IPython in a terminal is no notebook.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def silence_hints() -> None:
    """In a notebook, keep tqdm and Ray from asking for the package ipywidgets.

    sweeps does not show their progress bars.
    """
    if in_notebook():
        warnings.filterwarnings("ignore", message="IProgress not found")
        logging.getLogger("ray.widgets").setLevel(logging.WARNING)
