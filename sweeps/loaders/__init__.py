"""Functions that load data which is neither CSV nor Parquet: images, SQL queries, Hugging Face datasets, Delta and Iceberg tables.

A space file names such a function like a function of its user, with its arguments:

    data:
      train: {"sweeps.loaders:images": {path: photos, size: [32, 32]}}

Each function reads its source anew whenever sweeps loads data. The space file contains only the
function's arguments, not the rows. The libraries that read the sources are imported when they are
needed: `pip install "sweeps-ray[sources]"`.
"""

from sweeps.loaders.databases import delta, iceberg, sql
from sweeps.loaders.hugging_face import huggingface
from sweeps.loaders.image_files import images

__all__ = ["delta", "huggingface", "iceberg", "images", "sql"]
