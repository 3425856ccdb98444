"""Data of a sweep: read, split, prepared. Ray is imported only where rows are read or a preprocessor of Ray's is fitted."""

from sweeps.data.load import Splits, load_splits
from sweeps.data.preprocess import Fitted, data_key, fit_chain
from sweeps.data.tables import equal_parts

__all__ = ["Fitted", "Splits", "data_key", "equal_parts", "fit_chain", "load_splits"]
