"""The folder `prepared` of a sweep: the data and the fitted chains that an export needs.

    prepared/facts.json, facts-VARIANT.json   label, classes, features, number of rows by split,
                                              fingerprint
    prepared/check.parquet, ...               raw rows of valid; a bundle must reproduce the
                                              predictions for these rows
    prepared/test.parquet, ...                the test split
    prepared/KEY/                             a fitted chain, see
                                              `sweeps.data.preprocessing.step_files`; each pickle
                                              has a MAC file

Reading these files runs no code, with two exceptions: pickles, which `sweeps.core.trust` must
accept, and users' functions in a chain, whose modules are imported.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core import trust as trusting
from sweeps.core.atomic_files import staged
from sweeps.core.errors import InputError, Problem, UnreadableFile
from sweeps.core.label_columns import Label, label_columns
from sweeps.core.sweep_folder import SweepFolder
from sweeps.data.column_values import json_scalar
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fit import data_key
from sweeps.data.preprocessing.fitted_chain import FittedChain
from sweeps.data.tables import EXTENSION_KEY
from sweeps.data.variants import variant_name

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from sweeps.data.summary import DataSummary
    from sweeps.space import Step

INFO_FILE = "facts.json"
# Ray Data's types of tensor columns. Reading a column of another extension type may unpickle data.
TENSOR_TYPES = (
    "ray.data.arrow_tensor",
    "ray.data.arrow_tensor_v2",
    "ray.data.arrow_variable_shaped_tensor",
)


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Information about a sweep's data.

    The fields are the keys of `facts.json`, except `check`, which has its own file.

    Attributes:
        label: see `sweeps.data.load.Splits`.
        task: see `sweeps.data.load.Splits`.
        classes: see `sweeps.data.load.Splits`.
        features: see `sweeps.data.load.Splits`.
        fingerprint: see `sweeps.data.load.Splits`.
        rows: number of rows by split.
        check: the first raw rows of valid, at most 32, without the label.
        test: name of the file with the test split, without `.parquet`.
        notes: notes for the user about the splits.
        summary: summary of the raw rows of the first source as JSON data; see
            `sweeps.data.summary.DataSummary`. None if there is none.
        missing: see `sweeps.data.load.Splits`.
    """

    label: Label | None
    task: str | None
    classes: tuple[Any, ...] | None
    features: tuple[str, ...]
    fingerprint: str
    rows: dict[str, int]
    check: pd.DataFrame
    test: str = "test"
    notes: tuple[str, ...] = ()
    summary: dict[str, Any] | None = None
    missing: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)


class PreparedStore:
    """Reads and writes the folder `prepared` of a sweep.

    Each file is written completely or not at all.

    Args:
        folder: folder of the sweep.
        trust: True to read pickles even if they are not signed with this user's key.
    """

    def __init__(self, folder: Path, trust: bool = False):
        self.folder, self.trust = SweepFolder(folder).prepared, trust

    def save_info(
        self, info: DatasetInfo, check: pa.Table | None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Store the information about a data variant.

        Args:
            info: the information. Its field `check` is ignored; the argument `check` replaces it.
            check: rows to store in the file `check.parquet` of the variant. None if the sweep has
                no data.
            data: the variant's values of the tuned keys of `data`. None if nothing is tuned.
        """
        if check is not None:
            self.save_table(_file_stem("check", data), check)
        fields = {
            field.name: getattr(info, field.name)
            for field in dataclasses.fields(info)
            if field.name != "check"
        }
        text = json.dumps(fields, indent=1, ensure_ascii=False, default=json_scalar) + "\n"
        self._replace(
            f"{_file_stem('facts', data)}.json",
            lambda part: part.write_text(text, encoding="utf-8"),
        )

    def save_table(self, name: str, table: pa.Table) -> None:
        """Store rows, such as the test split, in `NAME.parquet`."""
        import pyarrow.parquet as pq

        self._replace(f"{name}.parquet", lambda part: pq.write_table(table, part))

    def save_chain(self, key: str, fitted: FittedChain) -> None:
        """Store a fitted chain in the folder `prepared/KEY`; see `data_key`.

        Raises:
            pickle.PicklingError, TypeError, AttributeError: a step cannot be pickled.
        """

        def write(part: Path) -> None:
            part.mkdir()
            for name in step_files.save_chain(fitted, part):
                trusting.sign(part / name)

        self._replace(key, write)

    def _replace(self, name: str, write: Callable[[Path], Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        with staged(self.folder / name) as part:
            write(part)

    def load_info(self, data: Mapping[str, Any] | None = None) -> DatasetInfo:
        """Load the information about a data variant.

        Args:
            data: the variant's values of the tuned keys of `data`. None if nothing is tuned.

        Raises:
            UnreadableFile: the file is damaged or missing.
        """
        import pandas as pd

        file = self.folder / f"{_file_stem('facts', data)}.json"
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            check = self._load_table(_file_stem("check", data))
            rows = pd.DataFrame() if check is None else check.to_pandas()
            for key in ("classes", "features", "notes", "label"):
                fields[key] = tuple(fields[key]) if isinstance(fields[key], list) else fields[key]
            return DatasetInfo(**fields, check=rows)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise unreadable(file, e) from None

    def load_chain(
        self, steps: Sequence[Step], data: Mapping[str, Any] | None = None
    ) -> FittedChain:
        """Load the chain that was fitted for the trials with these steps and this data variant.

        Raises:
            UnreadableFile: the chain is damaged or missing, or has a pickle that is not trusted.
        """
        key = data_key(self.load_info(data).fingerprint, steps)
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
            UnreadableFile: see `load_chain`.
        """
        folder = self.folder / key
        if not folder.is_dir():
            return None
        try:
            return step_files.load_chain(folder, lambda file: trusting.read(file, self.trust))
        except InputError:
            raise
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            EOFError,
            RecursionError,
            pickle.UnpicklingError,
        ) as e:
            raise unreadable(folder / step_files.FILE, e) from None

    def count_chains(self) -> int:
        """Return the number of stored chains that have at least one step."""
        folders = [
            folder for folder in self.folder.glob("*/") if (folder / step_files.FILE).is_file()
        ]
        return sum(bool(step_files.read_description(folder)["steps"]) for folder in folders)

    def load_test(
        self, data: Mapping[str, Any] | None = None
    ) -> tuple[pd.DataFrame, np.ndarray] | None:
        """Load the raw feature rows of the test split and their encoded labels.

        The labels have the shape (n,), or (n, k) for k label columns. Return None if there is no
        test split or no label.

        Raises:
            UnreadableFile: see `load_info`.
        """
        facts = self.load_info(data)
        if "test" not in facts.rows or facts.label is None:
            return None
        try:
            table = self._load_table(facts.test)
            if table is None:
                raise ValueError("the file does not exist")
            features = table.select(list(facts.features)).to_pandas()
            return features, encoded_labels(table, facts.label)
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise unreadable(self.folder / f"{facts.test}.parquet", e) from None

    def _load_table(self, name: str) -> pa.Table | None:
        """Load a table that `save_table` wrote. Return None if the file does not exist.

        Raises:
            ValueError: the file is not Parquet, or reading a column may unpickle data.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if Path(name).name != name:
            raise ValueError(f"`{name}` is not a file name")
        file = self.folder / f"{name}.parquet"
        if not file.exists():
            return None
        for field in pq.read_schema(file):
            marked = (field.metadata or {}).get(EXTENSION_KEY, b"").decode(errors="replace")
            kind = (
                field.type.extension_name
                if isinstance(field.type, pa.BaseExtensionType)
                else marked
            )
            if kind in TENSOR_TYPES:
                import ray.data.extensions  # noqa: F401 - registers the types
            elif kind:
                raise ValueError(f"column `{field.name}` is of type {kind}")
        return pq.read_table(file)


def encoded_labels(rows: pa.Table, label: Label) -> np.ndarray:
    """Return the encoded labels of some rows, shape (n,), or (n, k) for k label columns."""
    import numpy as np

    labels = [rows.column(name).to_numpy() for name in label_columns(label)]
    return labels[0] if len(labels) == 1 else np.column_stack(labels)


def load_summary(folder: Path) -> DataSummary | None:
    """Load the summary of a sweep's data.

    Return None if the sweep has none, or if the file is damaged.
    """
    from sweeps.data.summary import DataSummary

    try:
        stored = json.loads((SweepFolder(folder).prepared / INFO_FILE).read_text(encoding="utf-8"))[
            "summary"
        ]
        return None if stored is None else DataSummary.from_json(stored)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def unreadable(file: Path, error: Exception) -> UnreadableFile:
    """Return the error to raise for a file that cannot be read."""
    message = next(iter(str(error).splitlines()), "") or type(error).__name__
    return UnreadableFile(
        Problem(str(file), f"cannot be read: {message}; `sweeps resume` writes the file again")
    )


def _file_stem(name: str, data: Mapping[str, Any] | None) -> str:
    """Return the name of a variant's file without the suffix: NAME or NAME-VARIANT.

    An example is `facts-0f3a5c7b9d1e2f40`.
    """
    return f"{name}-{variant_name(data)}" if data else name
