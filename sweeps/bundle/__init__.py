"""The bundle: one folder that predicts from raw rows. It holds the model, its fitted preprocessor, and a record of how both were made.

A bundle is an MLflow `pyfunc` model. It needs neither a checkout of sweeps nor a Ray cluster:

    MLmodel, requirements.txt, input_example.json, ...      MLflow's files
    manifest.json                                           how the bundle was made, with the SHA-256 of every other file
    manifest.sha256                                         the SHA-256 of manifest.json
    code/                                                   the user's modules
    code/_sweeps/                                           the part of sweeps that the bundle needs
    data/sweep/model/                                       the checkpoint of the best step, without the files that only a resume needs
    data/sweep/preprocessor.json                            the fitted chain
    data/sweep/preprocessor-N.pkl                           step N of the chain, if it needs a pickle
    data/sweep/check.parquet                                raw rows
    data/sweep/check.npy                                    the model's output for these rows in training
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.bundle.manifest import Manifest
    from sweeps.bundle.model import Bundle, load_bundle
    from sweeps.bundle.predict import predict_file
    from sweeps.bundle.write import copy_checkpoint, write_bundle

__all__ = ["Bundle", "Manifest", "copy_checkpoint", "load_bundle", "predict_file", "write_bundle"]

# A bundle carries only the modules that load and predict. The others must be importable on demand.
_LAZY = {
    "Bundle": "model",
    "Manifest": "manifest",
    "copy_checkpoint": "write",
    "write_bundle": "write",
    "load_bundle": "model",
    "predict_file": "predict",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"sweeps.bundle.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'sweeps.bundle' has no attribute '{name}'")
