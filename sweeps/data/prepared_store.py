"""The folder `prepared` of a sweep: the data and the fitted chains that an export needs.

    prepared/facts.json, facts-VARIANT.json   label, classes, features, number of rows by split,
                                              fingerprint
    prepared/check.parquet, ...               raw rows of valid; a bundle must reproduce the
                                              predictions for these rows
    prepared/test.parquet, ...                the test split
    prepared/valid.npz, valid-VARIANT.npz     labels, folds and weights of the rows of valid
    prepared/KEY/                             a fitted chain, see
                                              `sweeps.data.preprocessing.step_files`; each pickle
                                              has a MAC file

Reading these files runs no code, with two exceptions: pickles, which `sweeps.core.files.trust` must
accept, and users' functions in a chain, whose modules are imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sweeps.core.errors import InputError, Problem, UnreadableFile, first_line
from sweeps.core.files import trust as trusting
from sweeps.core.files.atomic_files import write_atomically
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.label_columns import Classes, Label

from .columns.column_types import extension_name
from .columns.column_values import json_scalar
from .preprocessing import step_files
from .preprocessing.fit import data_key, label_values
from .preprocessing.fitted_chain import FittedChain
from .splits.valid_rows import ValidRows
from .splits.variants import TunedData, variant_name
from .summary.data_summary import DataSummary

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from sweeps.space import Step

    from .columns.missing import Markers

# Name of the file with the fields of a `DatasetInfo`
INFO_FILE = "facts.json"
# Ray Data's types of tensor columns. Reading a column of another extension type may unpickle data.
TENSOR_TYPES = (
    "ray.data.arrow_tensor",
    "ray.data.arrow_tensor_v2",
    "ray.data.arrow_variable_shaped_tensor",
)
# Errors that reading a damaged file raises
DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    RecursionError,
    pickle.UnpicklingError,
)


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Information about a sweep's data.

    The fields are the keys of `facts.json`, except `check`, which has its own file.

    Attributes:
        label: See `sweeps.data.splits.split_tables.Splits`.
        task: See `sweeps.data.splits.split_tables.Splits`.
        classes: See `sweeps.data.splits.split_tables.Splits`.
        features: See `sweeps.data.splits.split_tables.Splits`.
        fingerprint: See `sweeps.data.splits.split_tables.Splits`.
        rows: Number of rows by split.
        check: The first raw rows of valid, at most 32, without the label.
        test: Name of the file with the test split, without `.parquet`.
        notes: Notes for the user about the splits.
        summary: Summary of the raw rows of the first source. None if there is none.
        missing: See `sweeps.data.splits.split_tables.Splits`.
    """

    label: Label | None
    task: str | None
    classes: Classes | None
    features: tuple[str, ...]
    fingerprint: str
    rows: dict[str, int]
    check: pd.DataFrame
    test: str = "test"
    notes: tuple[str, ...] = ()
    summary: DataSummary | None = None
    missing: Markers = dataclasses.field(default_factory=dict)


class PreparedStore:
    """Reads and writes the folder `prepared` of a sweep.

    Each file is written completely or not at all.

    Args:
        folder: Folder of the sweep.
        trust: True to read pickles even if they are not signed with this user's key.
    """

    def __init__(self, folder: Path, trust: bool = False):
        self.folder = SweepFolder(folder).prepared
        self.trust = trust

    def save_info(
        self, info: DatasetInfo, check: pa.Table | None, data: TunedData | None = None
    ) -> None:
        """Store the information about a data variant.

        Args:
            info: The information. Its field `check` is ignored; the argument `check` replaces it.
            check: Rows to store in the file `check.parquet` of the variant. None if the sweep has
                no data.
            data: The variant's values of the tuned keys of `data`. None if nothing is tuned.
        """
        if check is not None:
            self.save_table(_file_stem("check", data), check)
        fields = {
            field.name: getattr(info, field.name)
            for field in dataclasses.fields(info)
            if field.name != "check"
        }
        if info.summary is not None:
            fields["summary"] = dataclasses.asdict(info.summary)
        text = json.dumps(fields, indent=1, ensure_ascii=False, default=json_scalar) + "\n"
        with self._staged(f"{_file_stem('facts', data)}.json") as part:
            part.write_text(text, encoding="utf-8")

    def save_table(self, name: str, table: pa.Table) -> None:
        """Store rows, such as the test split, in `NAME.parquet`."""
        import pyarrow.parquet as pq

        with self._staged(f"{name}.parquet") as part:
            pq.write_table(table, part)

    def save_chain(self, key: str, fitted: FittedChain) -> None:
        """Store a fitted chain in the folder `prepared/KEY`; see `data_key`.

        Raises:
            pickle.PicklingError, TypeError, AttributeError: A step cannot be pickled.
        """
        with self._staged(key) as part:
            part.mkdir()
            for name in step_files.save_chain(fitted, part):
                trusting.sign(part / name)

    @contextlib.contextmanager
    def _staged(self, name: str) -> Iterator[Path]:
        """Yield a temporary path, which becomes the file or folder `name` when the block ends."""
        self.folder.mkdir(exist_ok=True)
        with write_atomically(self.folder / name) as part:
            yield part

    def load_info(self, data: TunedData | None = None) -> DatasetInfo:
        """Load the information about a data variant.

        Args:
            data: The variant's values of the tuned keys of `data`. None if nothing is tuned.

        Raises:
            UnreadableFile: The file is damaged or missing.
        """
        import pandas as pd

        file = self.folder / f"{_file_stem('facts', data)}.json"
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            check = self._load_table(_file_stem("check", data))
            rows = pd.DataFrame() if check is None else check.to_pandas()
            for key in ("classes", "features", "notes", "label"):
                fields[key] = tuple(fields[key]) if isinstance(fields[key], list) else fields[key]
            if fields["summary"] is not None:
                fields["summary"] = DataSummary.from_json(fields["summary"])
            return DatasetInfo(**fields, check=rows)
        except DAMAGE as e:
            raise unreadable(file, e) from None

    def load_chain(
        self, steps: Sequence[Step], data: TunedData | None = None, fold: int | None = None
    ) -> FittedChain:
        """Load the chain that was fitted for the trials with these steps and this data variant.

        Args:
            steps: The steps.
            data: See `load_info`.
            fold: Number of the fold on whose train rows the chain was fitted, starting with 1.
                None without a cross-validation.

        Raises:
            UnreadableFile: The chain is damaged or missing, or has a pickle that is not trusted.
        """
        key = data_key(self.load_info(data).fingerprint, steps)
        if fold is not None:
            key = fold_key(key, fold)
        chain = self.find_chain(key)
        if chain is None:
            raise UnreadableFile(
                Problem(
                    str(self.folder / key),
                    "does not exist, because the fitted preprocessor of this trial was not stored",
                )
            )
        return chain

    def find_chain(self, key: str) -> FittedChain | None:
        """Load the chain in the folder `prepared/KEY`. Return None if no such chain is stored.

        Raises:
            UnreadableFile: See `load_chain`.
        """
        folder = self.folder / key
        if not folder.is_dir():
            return None
        try:
            return step_files.load_chain(folder, lambda file: trusting.read(file, self.trust))
        except InputError:
            raise
        except DAMAGE as e:
            raise unreadable(folder / step_files.FILE, e) from None

    def count_chains(self) -> int:
        """Return the number of stored chains that have at least one step."""
        folders = [
            folder for folder in self.folder.glob("*/") if (folder / step_files.FILE).is_file()
        ]
        return sum(bool(step_files.read_description(folder)["steps"]) for folder in folders)

    def save_valid(self, rows: ValidRows | None, data: TunedData | None = None) -> None:
        """Store facts about the rows of valid of a data variant, if there are any."""
        if rows is None:
            return
        arrays = {name: array for name, array in vars(rows).items() if array is not None}
        with (
            self._staged(f"{_file_stem('valid', data)}.npz") as part,
            open(part, "wb") as opened,
        ):
            np.savez(opened, allow_pickle=False, **arrays)

    def load_valid(self, data: TunedData | None = None) -> ValidRows | None:
        """Load what `save_valid` stored. Return None if nothing was stored.

        Raises:
            UnreadableFile: The file is damaged.
        """
        file = self.folder / f"{_file_stem('valid', data)}.npz"
        if not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return ValidRows(**arrays)
        except (*DAMAGE, zipfile.BadZipFile) as e:
            raise unreadable(file, e) from None

    def load_test(self, data: TunedData | None = None) -> tuple[pd.DataFrame, np.ndarray] | None:
        """Load the raw feature rows of the test split and their encoded labels.

        The labels have the shape (n,), or (n, k) for k label columns. Return None if there is no
        test split or no label.

        Raises:
            UnreadableFile: See `load_info`.
        """
        info = self.load_info(data)
        if "test" not in info.rows or info.label is None:
            return None
        try:
            table = self._load_table(info.test)
            if table is None:
                raise ValueError("the file does not exist")
            labels = label_values(table, info.label)
            if labels is None:
                raise ValueError("the file has no label")
            return table.select(list(info.features)).to_pandas(), labels
        except DAMAGE as e:
            raise unreadable(self.folder / f"{info.test}.parquet", e) from None

    def _load_table(self, name: str) -> pa.Table | None:
        """Load a table that `save_table` wrote. Return None if the file does not exist.

        Raises:
            ValueError: The file is not Parquet, or reading a column may unpickle data.
        """
        import pyarrow.parquet as pq

        if Path(name).name != name:
            raise ValueError(f"`{name}` is not a file name")
        file = self.folder / f"{name}.parquet"
        if not file.exists():
            return None
        for field in pq.read_schema(file):
            kind = extension_name(field)
            if kind in TENSOR_TYPES:
                import ray.data.extensions  # noqa: F401 - registers the types
            elif kind:
                raise ValueError(f"column `{field.name}` is of type {kind}")
        return pq.read_table(file)


def fold_key(key: str, fold: int) -> str:
    """Return the name of the data of a fold, given that of the whole data; see `data_key`."""
    return f"{key}-fold-{fold}"


def load_summary(folder: Path) -> DataSummary | None:
    """Load the summary of a sweep's data.

    Return None if the sweep has none, or if the file is damaged.
    """
    try:
        stored = json.loads((SweepFolder(folder).prepared / INFO_FILE).read_text(encoding="utf-8"))[
            "summary"
        ]
        return None if stored is None else DataSummary.from_json(stored)
    except DAMAGE:
        return None


def unreadable(file: Path, error: Exception) -> UnreadableFile:
    """Return the error to raise for a file that cannot be read."""
    return UnreadableFile(
        Problem(
            str(file), f"cannot be read: {first_line(error)}; `sweeps resume` writes the file again"
        )
    )


def _file_stem(name: str, data: TunedData | None) -> str:
    """Return the name of a variant's file without the suffix: NAME or NAME-VARIANT.

    An example is `facts-0f3a5c7b9d1e2f40`.
    """
    return f"{name}-{variant_name(data)}" if data else name
