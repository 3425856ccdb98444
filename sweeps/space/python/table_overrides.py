"""The tables that a Python script passed to `sweeps.run`, as overrides of the space file.

`sweeps.data.sources.passed_tables` writes them.
"""

import json
from collections.abc import Iterable
from pathlib import Path

# The keys of the section `data` for which a table can be passed.
KEYS = ("train", "valid", "test")
# Suffix of a stored table.
ROWS = ".parquet"


def overrides_of(files: Iterable[Path]) -> tuple[str, ...]:
    """Return overrides that make a space file read tables.

    An example is `data.train="/folder/train.parquet"`.
    """
    return tuple(f"data.{path.stem}={json.dumps(str(path.absolute()))}" for path in files)


def table_overrides(folder: Path) -> tuple[str, ...]:
    """Return overrides that make a space file read the tables in a folder. () if there are none.

    These overrides are not recorded in `origin.json`, because the sweep's folder may be moved.
    """
    return overrides_of(table_files(folder))


def table_files(folder: Path) -> list[Path]:
    """Return the files of the tables in a folder; [] if there is no folder."""
    return [path for path in sorted(folder.glob(f"*{ROWS}")) if path.stem in KEYS]
