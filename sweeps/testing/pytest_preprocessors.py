"""Conformance suite for preprocessing steps.

Subclass `PreprocessorTests` in a test file, and pytest runs the tests on your step.

class TestClip(PreprocessorTests):
    step = "my_steps:Clip"
    params = {"quantile": 0.99}

The suite fits the step on a small table, in the same way as a sweep.
"""

import pickle
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sweeps.data.preprocessing.fit import fit_chain
from sweeps.data.preprocessing.fitted_chain import FittedChain
from sweeps.space import Step


class PreprocessorTests:
    """Tests that every preprocessing step must pass.

    Attributes:
        step: The step as in a space file: the name of a built-in step, or
            `module:attr`.
        params: Parameters of the step.
        columns: Columns to which the step is applied, as in a space file. None uses the step's
            default.
    """

    step: ClassVar[str]
    params: ClassVar[dict[str, Any]] = {}
    columns: ClassVar[Any] = None

    def frame(self) -> pd.DataFrame:
        """Return the training rows: three numeric columns and the label `y`.

        Override this method if the step needs other columns.
        """
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 3))
        return pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=(x[:, 0] > 0).astype(np.int64))

    def other_rows(self) -> pd.DataFrame:
        """Return rows on which the step is not fitted. Override this together with `frame`."""
        return self.frame().sample(frac=0.5, random_state=1).reset_index(drop=True)

    @pytest.fixture
    def fitted(self) -> FittedChain:
        """The step, fitted on the training rows."""
        return self.fit()

    def fit(self) -> FittedChain:
        """Fit the step in the same way as a sweep."""
        return fit_chain(
            [Step(self.step, self.columns, dict(self.params))],
            pa.Table.from_pandas(self.frame()),
            "y",
        )

    def test_it_changes_no_input(self, fitted: FittedChain) -> None:
        """`fit` and `transform` do not change the frames that they receive."""
        rows = self.other_rows()
        before = rows.copy(deep=True)
        fitted.transform(rows)
        pd.testing.assert_frame_equal(rows, before)

    def test_it_keeps_every_row(self, fitted: FittedChain) -> None:
        """`transform` returns one row for each input row."""
        assert len(fitted.transform(self.frame())) == len(self.frame())

    def test_it_works_row_by_row(self, fitted: FittedChain) -> None:
        """A row's result does not depend on the other rows.

        So a bundle predicts a single row in the same way as many rows.
        """
        rows = self.other_rows()
        whole = fitted.transform(rows)
        parts = [
            fitted.transform(rows.iloc[[position]].reset_index(drop=True)) for position in range(5)
        ]
        pd.testing.assert_frame_equal(
            pd.concat(parts, ignore_index=True), whole.iloc[:5], check_exact=False
        )

    def test_other_rows_get_the_same_columns(self, fitted: FittedChain) -> None:
        """The names and types of the output columns do not depend on the rows."""
        train = fitted.transform(self.frame())
        other = fitted.transform(self.other_rows())
        assert list(train.columns) == list(other.columns)
        assert list(train.dtypes) == list(other.dtypes)

    def test_fitting_again_repeats_the_result(self, fitted: FittedChain) -> None:
        """Two fits on the same rows give the same transformed rows."""
        pd.testing.assert_frame_equal(
            self.fit().transform(self.other_rows()), fitted.transform(self.other_rows())
        )

    def test_it_can_be_pickled(self, fitted: FittedChain) -> None:
        """A fitted step must be picklable, because it is sent to workers and saved in a bundle.

        The copy must transform rows in the same way as the original.
        """
        copy = pickle.loads(pickle.dumps(fitted))
        pd.testing.assert_frame_equal(
            copy.transform(self.other_rows()), fitted.transform(self.other_rows())
        )
