"""The bundle: one folder that predicts from raw rows, with the model, its fitted preprocessor and how both were made.

An MLflow `pyfunc` model that needs neither this checkout nor a Ray cluster:

    MLmodel, requirements.txt, input_example.json, ...      MLflow's
    manifest.json                                           how it was made, and the SHA-256 of every other file
    code/                                                   sweeps, trainers and the user's modules, as they were
    data/sweep/model/                                       the best step's checkpoint
    data/sweep/preprocessor.pkl                             the fitted chain, if the trial had one
    data/sweep/check.parquet, check.npy                     raw rows, and what the model answered for them in training
"""

from sweeps.bundle.export import copy_checkpoint, export
from sweeps.bundle.manifest import Manifest
from sweeps.bundle.model import Bundle, load_bundle
from sweeps.bundle.predict import predict_file

__all__ = ["Bundle", "Manifest", "copy_checkpoint", "export", "load_bundle", "predict_file"]
