"""Read images from files or from a column of a Parquet file."""

import functools
import io
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .lookup import find

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


def images(
    path: str,
    size: Sequence[int],
    *,
    mode: str = "RGB",
    column: str = "image",
    label: str | None = "label",
    bytes_column: str | None = None,
) -> pa.Table:
    """Read and decode JPEG or PNG images, and resize them to one size.

    Args:
        path: A folder of image files, or a Parquet file with a column of encoded images. In a
            folder, the name of the subfolder that contains an image is its label, as in
            `photos/cat/1.png`.
        size: Height and width of each decoded image in pixels. Images of another size are resized
            with bilinear interpolation.
        mode: Pillow's color mode, such as `RGB` or `L` (gray).
        column: Name of the column of decoded images.
        label: Name of the column of labels, if the images lie in subfolders; None for no labels.
        bytes_column: For a Parquet file: name of the column of encoded images, with bytes, or with
            structs that have the field `bytes`, as Hugging Face writes them. This column is left
            out of the result.

    Returns:
        A table. The column of images has uint8 tensors with the shape (height, width, channels), or
        (height, width) for gray images. The images of a folder are in the order of their paths. A
        table from a Parquet file also has the other columns of the file.

    Raises:
        ValueError: There are no images, an image cannot be decoded, or an argument is wrong.
    """
    from ray.data.extensions import ArrowTensorArray

    if len(size) != 2 or not all(isinstance(n, int) and n > 0 for n in size):
        raise ValueError(f"size: must be [height, width] in pixels, got {list(size)}")
    source = find(path)
    other_columns: dict[str, pa.ChunkedArray | list[str]] = {}
    encoded: Mapping[str, Any]  # each image as a file or as bytes, by its name for messages
    if source.is_dir():
        encoded = _find_images(source, path)
        folders = [file.parent for file in encoded.values()]
        if label is not None and source not in folders:
            other_columns[label] = [folder.name for folder in folders]
    else:
        table = _read_parquet(source, path, bytes_column)
        encoded = {
            f"row {number}": value.get("bytes") if isinstance(value, dict) else value
            for number, value in enumerate(table.column(bytes_column).to_pylist())
        }
        names = [name for name in table.column_names if name != bytes_column]
        other_columns = {name: table.column(name) for name in names}
    height, width = size
    decode = functools.partial(_decode, size=(width, height), mode=mode)
    places = [f"{path}: {name}" for name in encoded]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes without Python's lock.
        decoded = np.stack(list(pool.map(decode, encoded.values(), places)))
    return pa.table({column: ArrowTensorArray.from_numpy(decoded)} | other_columns)


def _find_images(folder: Path, path: str) -> dict[str, Path]:
    """Return the image files of a folder, by their path in the folder, in the order of paths.

    `path` is the folder's path as the user wrote it, for messages.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise ValueError(
            f"path: folder `{path}` has no image; valid suffixes: {', '.join(IMAGE_SUFFIXES)}"
        )
    return {str(file.relative_to(folder)): file for file in files}


def _read_parquet(file: Path, path: str, column: str | None) -> pa.Table:
    """Read a Parquet file, and check that it has the column of images; see `_find_images`."""
    import pyarrow.parquet as pq

    if not file.exists():
        raise ValueError(f"path: `{path}` does not exist")
    table = pq.read_table(file)
    if column is None or column not in table.column_names:
        raise ValueError(
            f"bytes_column: must be the column of `{path}` that has the images; its columns are "
            f"{', '.join(table.column_names)}"
        )
    return table


def _decode(encoded: Path | bytes, name: str, size: tuple[int, int], mode: str) -> np.ndarray:
    """Decode one image, and resize it to a width and a height. `name` is for messages."""
    try:
        from PIL import Image
    except ModuleNotFoundError as e:
        raise ValueError(
            'needs the package `pillow`; install it with: pip install "sweeps-ray[sources]"'
        ) from e
    try:
        with Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as image:
            converted = image.convert(mode)
            if converted.size != size:
                converted = converted.resize(size, Image.Resampling.BILINEAR)
            return np.asarray(converted)
    except Exception as e:
        raise ValueError(f"`{name}` cannot be decoded as an image: {e}") from e
