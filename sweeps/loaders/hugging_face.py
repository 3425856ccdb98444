"""Read a dataset of Hugging Face."""

from __future__ import annotations

from typing import Any

from sweeps.loaders.lookup import find, library


def huggingface(path: str, split: str = "train", **options: Any) -> Any:
    """Read a dataset of Hugging Face's library `datasets`.

    Args:
        path: A folder that `save_to_disk` has written, or the name of a dataset on the hub, or of a
            format, as in `{path: json, data_files: rows.json}`.
        split: Name of the split.
        options: Other arguments of `datasets.load_dataset`.

    Returns:
        The dataset.

    Raises:
        ValueError: The dataset has no such split.
    """
    datasets = library("datasets")
    if find(path).is_dir():
        found = datasets.load_from_disk(str(find(path)))
        if isinstance(found, datasets.Dataset):
            return found
        if split not in found:
            raise ValueError(
                f"split: `{path}` has no split `{split}`; its splits are {', '.join(found)}"
            )
        return found[split]
    return datasets.load_dataset(path, split=split, **options)
