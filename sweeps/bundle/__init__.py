"""The bundle: one folder that predicts from raw rows, with the model, its fitted preprocessor and how both were made.

An MLflow `pyfunc` model that needs neither this checkout nor a Ray cluster:

    MLmodel, requirements.txt, input_example.json, ...      MLflow's
    manifest.json, manifest.sha256                          how it was made, and the SHA-256 of every other file; of the manifest
    code/, code/_sweeps/                                    the user's modules, as they were; what it needs of sweeps
    data/sweep/model/                                       the best step's checkpoint, without what only going on from it needs
    data/sweep/preprocessor.json                            the fitted chain; preprocessor-N.pkl for a step that is no plain data
    data/sweep/check.parquet, check.npy                     raw rows, and what the model answered for them in training
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.bundle.manifest import Manifest
    from sweeps.bundle.model import Bundle, load_bundle
    from sweeps.bundle.predict import predict_file
    from sweeps.bundle.write import copy_checkpoint, export

__all__ = ["Bundle", "Manifest", "copy_checkpoint", "export", "load_bundle", "predict_file"]

# A bundle carries the modules that it loads and predicts with; the others must not be needed for that.
_LAZY = {
    "Bundle": "model",
    "Manifest": "manifest",
    "copy_checkpoint": "write",
    "export": "write",
    "load_bundle": "model",
    "predict_file": "predict",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"sweeps.bundle.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'sweeps.bundle' has no attribute '{name}'")
