"""Rows without a label are refused, or are left out and counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.data.load_data import load_splits
from tests.data.test_load import frame_of, spec
from tests.data.test_split import rule


class TestRowsWithoutALabel:
    """`data.drop_missing_label: true`."""

    ROWS = (
        "{'x': range(12), 'y': ['no', 'yes', None, 'no', 'yes', 'no', 'yes', None, 'no', 'yes', "
        "'no', 'yes']}"
    )

    def loaded(self, module: Any, tmp_path: Path, rows: str = ROWS, **changes: Any) -> Any:
        without_labels = spec(
            module(f"def load():\n    return pd.DataFrame({rows})"), tmp_path, label="y", **changes
        )
        return load_splits(replace(without_labels, drop_missing_label=True))

    def test_they_are_refused_with_the_key_that_leaves_them_out(
        self, module: Any, tmp_path: Path
    ) -> None:
        with pytest.raises(
            InputError, match=r"data.label: .*2 missing values.*`data.drop_missing_label: true`"
        ):
            frame_of(module, tmp_path, self.ROWS, label="y")

    def test_they_are_left_out_and_counted(self, module: Any, tmp_path: Path) -> None:
        splits = self.loaded(module, tmp_path)
        assert (splits.task, splits.classes) == ("binary", ("no", "yes"))
        assert sorted(
            v for part in (splits.train, splits.valid) for v in part.column("x").to_pylist()
        ) == [0, 1, 3, 4, 5, 6, 8, 9, 10, 11]
        assert splits.train.column("y").null_count == splits.valid.column("y").null_count == 0
        note, positive = splits.notes
        assert "data.drop_missing_label" in note and "2 of data.train" in note
        assert positive == "the positive class of `y` is 'yes' (data.positive)"

    def test_the_fingerprint_says_how_many(self, module: Any, tmp_path: Path) -> None:
        whole = "{'x': [0, 1, 3, 4], 'y': ['no', 'yes', 'no', 'yes']}"
        more = "{'x': [0, 1, 2, 3, 4], 'y': ['no', 'yes', None, 'no', 'yes']}"
        given = frame_of(module, tmp_path, whole, label="y")
        one, two = self.loaded(module, tmp_path, whole), self.loaded(module, tmp_path, more)
        assert one.notes == given.notes and "missing" not in str(one.notes)
        assert one.train.equals(two.train) and one.train.equals(given.train)
        assert len({given.fingerprint, one.fingerprint, two.fingerprint}) == 3

    def test_in_sources_of_their_own(self, module: Any, tmp_path: Path) -> None:
        ref = module(
            "def load(hole):\n    return pd.DataFrame({'x': range(6), 'y': [None] * hole + ([0.0, "
            "1.0] * 3)[hole:]})"
        )

        def loaded(train: int, valid: int, test: int) -> Any:
            others = {
                key: rule("path", path=ref, args={"hole": hole})
                for key, hole in (("valid", valid), ("test", test))
            }
            return load_splits(
                replace(
                    spec(ref, tmp_path, label="y", **others),
                    args={"hole": train},
                    drop_missing_label=True,
                )
            )

        splits = loaded(1, 2, 3)
        assert [part.num_rows for part in (splits.train, splits.valid, splits.test)] == [5, 4, 3]
        (note,) = splits.notes
        assert all(
            piece in note for piece in ("1 of data.train", "2 of data.valid", "3 of data.test")
        )
        with pytest.raises(InputError, match=r"data.label: .*no value in data.valid"):
            loaded(1, 6, 3)
