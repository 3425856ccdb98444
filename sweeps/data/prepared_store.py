"""What a sweep's folder keeps of its data, for the export: the facts, the fitted chains and the test split.

    prepared/facts.json, facts-VARIANT.json   label, classes, features, rows by split, fingerprint
    prepared/check.parquet, ...               raw rows of `valid` that a bundle must answer for
    prepared/test.parquet, ...                the test split
    prepared/KEY/                             a fitted chain, see `sweeps.data.preprocessing.step_files`; a pickle has its MAC beside it

Nothing here runs code when it is read, but a pickle, which `sweeps.core.trust` vouches for, and a function that a chain names.
Earlier versions kept a pickle of each of these, which is read only if it is trusted.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core import old_pickles
from sweeps.core import trust as trusting
from sweeps.core.atomic_files import staged
from sweeps.core.errors import InputError, Problem
from sweeps.core.sweep_folder import SweepFolder, refuse_special_files
from sweeps.core.trust import UnreadableFile, UntrustedFile
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fit import FittedChain, data_key
from sweeps.data.variants import variant_name

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from sweeps.space import Step

INFO_FILE = "facts.json"
# Ray Data's types of a column of tensors. Reading a column of any other type of Ray's would unpickle it.
TENSOR_TYPES = "ray.data.arrow_tensor", "ray.data.arrow_tensor_v2", "ray.data.arrow_variable_shaped_tensor"
EXTENSION_KEY = b"ARROW:extension:name"


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """What the rest of a sweep needs to know of its data.

    Attributes:
        label, task, classes, features, fingerprint: see `sweeps.data.Splits`.
        rows: by split.
        check: raw feature rows of `valid`, up to 32.
        test: the name of the test split on the shelf.
        notes: what the user should know of the splits.
    """

    label: str | None
    task: str | None
    classes: tuple[Any, ...] | None
    features: tuple[str, ...]
    fingerprint: str
    rows: dict[str, int]
    check: pd.DataFrame
    test: str = "test"
    notes: tuple[str, ...] = ()


class PreparedStore:
    """The folder `prepared` of a sweep.

    Args:
        folder: the sweep's.
        trust: read pickles whoever wrote them.
    """

    def __init__(self, folder: Path, trust: bool = False):
        self.folder, self.trust = SweepFolder(folder).prepared, trust

    # ---- writing, each whole or not at all

    def save_info(self, facts: DatasetInfo, check: pa.Table | None, data: Mapping[str, Any] | None = None) -> None:
        """Keep the facts of a variant of the data.

        Args:
            facts: its `check` is not written.
            check: the same rows as a table; None without data.
            data: what is tuned of the data, and how.
        """
        if check is not None:
            self.save_table(_file_stem("check", data), check)
        told = {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts) if field.name != "check"}
        text = json.dumps({"format": 1, **told}, indent=1, ensure_ascii=False, default=_to_json) + "\n"
        self._replace(f"{_file_stem('facts', data)}.json", lambda part: part.write_text(text, encoding="utf-8"))

    def save_table(self, name: str, table: pa.Table) -> None:
        """Keep rows, such as the test split."""
        import pyarrow.parquet as pq

        self._replace(f"{name}.parquet", lambda part: pq.write_table(table, part))

    def save_chain(self, key: str, fitted: FittedChain) -> None:
        """Keep a fitted chain.

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

    # ---- reading

    def load_info(self, data: Mapping[str, Any] | None = None) -> DatasetInfo:
        """Return the facts of a variant; of data of which nothing is tuned without an argument.

        Raises:
            UnreadableFile: they are damaged or missing, or an earlier version's and not trusted.
        """
        import pandas as pd

        name = _file_stem("facts", data)
        file = self.folder / f"{name}.json"
        if not file.exists() and (self.folder / f"{name}.pkl").exists():
            return self._load_pickle(name)
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            if told.pop("format") != 1:
                raise ValueError("it is of a later version")
            check = self._load_table(_file_stem("check", data))
            rows = pd.DataFrame() if check is None else check.to_pandas()
            for key in ("classes", "features", "notes"):
                told[key] = None if told[key] is None else tuple(told[key])
            return DatasetInfo(**told, check=rows)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise unreadable(file, e) from None

    def load_chain(self, steps: Sequence[Step], data: Mapping[str, Any] | None = None) -> FittedChain:
        """Return the chain as it was fitted for the trials that used it, on their variant of the data.

        Raises:
            UnreadableFile: it is damaged or missing, or holds a pickle that is not trusted.
        """
        key = data_key(self.load_info(data).fingerprint, steps)
        found = self.find_chain(key)
        if found is None:
            raise UnreadableFile(Problem(str(self.folder / key), "there is no such folder; the chain of this trial is not on record"))
        return found

    def find_chain(self, key: str) -> FittedChain | None:
        """Return the chain with a key; None if there is none.

        Raises:
            UnreadableFile: see `chain`.
        """
        folder = self.folder / key
        if not folder.is_dir():
            return self._load_pickle(key) if folder.with_suffix(".pkl").exists() else None
        try:
            return step_files.load_chain(folder, lambda file: trusting.read(file, self.trust))
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError, pickle.UnpicklingError) as e:
            raise unreadable(folder / step_files.FILE, e) from None

    def count_chains(self) -> int:
        """Return how many chains with a step in them are kept."""
        return sum(bool(step_files.requested_steps(folder)) for folder in self.folder.glob("*/") if (folder / step_files.FILE).is_file())

    def load_test(self, data: Mapping[str, Any] | None = None) -> tuple[pd.DataFrame, np.ndarray] | None:
        """Return raw feature rows of the test split and their encoded labels; None without one.

        Raises:
            UnreadableFile: see `facts`.
        """
        facts = self.load_info(data)
        if "test" not in facts.rows or facts.label is None:
            return None
        try:
            table = self._load_table(facts.test)
            table = self._load_pickle(facts.test) if table is None else table
            return table.select(list(facts.features)).to_pandas(), table.column(facts.label).to_numpy()
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise unreadable(self.folder / f"{facts.test}.parquet", e) from None

    def _load_pickle(self, name: str) -> Any:
        return old_pickles.loads(trusting.read(self.folder / f"{name}.pkl", self.trust))

    def _load_table(self, name: str) -> pa.Table | None:
        """A table that `put_table` wrote.

        Raises:
            ValueError: it is no Parquet, or has a column that would have to be unpickled.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if Path(name).name != name:
            raise ValueError(f"`{name}` is no name of a file")
        file = self.folder / f"{name}.parquet"
        if not file.exists():
            return None
        for field in pq.read_schema(file):
            marked = (field.metadata or {}).get(EXTENSION_KEY, b"").decode(errors="replace")
            kind = field.type.extension_name if isinstance(field.type, pa.BaseExtensionType) else marked
            if kind in TENSOR_TYPES:
                import ray.data.extensions  # noqa: F401 - which registers them
            elif kind:
                raise ValueError(f"column `{field.name}` is of type {kind}")
        return pq.read_table(file)


def refuse_untrusted(folder: Path, trust: bool) -> None:
    """Refuse a sweep's folder whose data cannot be read safely, before anything is changed in it.

    Raises:
        UntrustedFile: an earlier version keeps pickles in it, and `trust` is false.
        InputError: what is prepared holds a link or a pipe.
    """
    kept = SweepFolder(folder).prepared
    refuse_special_files(kept)
    if not trust and not (kept / INFO_FILE).exists() and (kept / "facts.pkl").exists():
        text = "was written by an earlier version, and reading it runs code; if you trust who made this folder, add --trust"
        raise UntrustedFile(Problem(str(kept / "facts.pkl"), text))


def unreadable(file: Path, error: Exception) -> UnreadableFile:
    """Return what to raise for a file that cannot be read."""
    said = next(iter(str(error).splitlines()), "") or type(error).__name__
    return UnreadableFile(Problem(str(file), f"cannot be read: {said}; `sweeps resume` writes it anew"))


def _to_json(value: Any) -> Any:
    """A class that JSON does not know: a NumPy scalar as Python's own, anything else as text."""
    own = value.item() if hasattr(value, "item") else value
    return own if isinstance(own, bool | int | float | str) else str(own)


def _file_stem(name: str, data: Mapping[str, Any] | None) -> str:
    """The name of a file of a variant."""
    return f"{name}-{variant_name(data)}" if data else name
