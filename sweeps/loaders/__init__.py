"""Loaders of data that is no table.

A space file names a loader with its arguments:

    data:
      train: {"sweeps.loaders:images": {path: photos, size: [32, 32]}}

The function reads its source anew whenever sweeps loads data. The space file contains only the
function's arguments, not the rows. The libraries that read the source are imported when they are
needed: `pip install "sweeps-ray[sources]"`.
"""

from .image_files import images

__all__ = ["images"]
