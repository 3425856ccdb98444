"""Load the preprocessors of a bundle, each of them once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fitted_chain import FittedChain

from .manifest import MODEL_FOLDER


class SharedChains:
    """The preprocessors of a bundle. Members with equal files share one preprocessor.

    Args:
        path: The bundle's folder.
        files: SHA-256 of each file, by the file's path in the bundle.
    """

    def __init__(self, path: Path, files: Mapping[str, str]):
        self._path = path
        self._files = files
        self._loaded: dict[object, FittedChain] = {}

    def load(self, data: Path, columns: Sequence[str]) -> FittedChain | None:
        """Return the preprocessor of a model; None if it has none.

        Args:
            data: Folder with the model and the preprocessor.
            columns: Names of the raw columns of the model.
        """
        if not (data / step_files.FILE).is_file():
            return None
        inside = data.relative_to(self._path).as_posix() + "/"
        hashes = {
            name.removeprefix(inside): digest
            for name, digest in self._files.items()
            if name.startswith(inside) and not name.startswith(f"{inside}{MODEL_FOLDER}/")
        }
        key = (tuple(sorted(hashes.items())), tuple(columns))
        if key not in self._loaded:
            self._loaded[key] = step_files.load_chain(data)
        return self._loaded[key]
