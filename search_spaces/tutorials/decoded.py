"""Read images with Ray Data, and decode them in a `map`, for `vit_ray_data.yaml`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
from PIL import Image

HERE = Path(__file__).parent


def images(path: str, bytes_column: str = "bytes") -> ray.data.Dataset:
    """Return a lazy Ray Dataset with the columns `image` and `label`.

    The images are uint8 tensors of shape (32, 32, 3).

    Args:
        path: A folder with one subfolder of JPEG or PNG files for each class, or a Parquet file. A
            relative path starts at this module.
        bytes_column: For a Parquet file: the column with the encoded images. The file also has the
            column `label`.
    """
    where = HERE / path
    encoded = (
        ray.data.read_binary_files(str(where), include_paths=True)
        if where.is_dir()
        else ray.data.read_parquet(str(where))
    )
    return encoded.map(decoder(bytes_column))


def decoder(bytes_column: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that decodes the image of a row.

    The label of a file is the name of its folder.

    Ray gets the inner function by value, because Ray's tasks cannot import a module that is beside
    a space file.
    """

    def decode(row: dict[str, Any]) -> dict[str, Any]:
        with Image.open(io.BytesIO(row[bytes_column])) as image:
            pixels = np.asarray(image.convert("RGB").resize((32, 32)))
        return {
            "image": pixels,
            "label": row["label"] if "label" in row else Path(row["path"]).parent.name,
        }

    return decode
