"""Data of a sweep: check it, read it, split it, prepare it. Ray is imported only to read rows or to fit one of Ray's preprocessors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.data.load import Splits, load_splits
    from sweeps.data.preprocessing.fit import data_key, fit_chain
    from sweeps.data.preprocessing.fitted_chain import FittedChain
    from sweeps.data.tables import split_equally

__all__ = ["FittedChain", "Splits", "data_key", "fit_chain", "load_splits", "split_equally"]

# Most of these import pandas; `preflight`, which answers in a fraction of a second, is here too and needs none of them.
_LAZY = {
    "FittedChain": "preprocessing.fitted_chain",
    "Splits": "load",
    "data_key": "preprocessing.fit",
    "split_equally": "tables",
    "fit_chain": "preprocessing.fit",
    "load_splits": "load",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"sweeps.data.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'sweeps.data' has no attribute '{name}'")
