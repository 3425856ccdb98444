"""Write, check and load bundles.

A bundle is one folder with all that is needed to make predictions for raw rows.

The folder contains the model, the fitted preprocessor, and a record of how both were made. A bundle
is an MLflow `pyfunc` model. Predicting with a bundle needs neither a checkout of sweeps nor a Ray
cluster. These are the files of a bundle:

    MLmodel, requirements.txt, input_example.json, ...   MLflow's files
    README.md                                            for people: what the model is, how to use
                                                         it, how it was made
    manifest.json                                        how the bundle was made, with the SHA-256
                                                         of every other file
    manifest.sha256                                      the SHA-256 of manifest.json
    code/                                                the user's modules
    code/_sweeps/                                        the part of sweeps that the bundle needs
    data/sweep/model/                                    the checkpoint of the best step, without
                                                         the files that only a resume needs
    data/sweep/preprocessor.json                         the fitted preprocessor, a chain of steps
    data/sweep/preprocessor-N.pkl                        step N of the chain, if the step can only
                                                         be stored as a pickle
    data/sweep/check.parquet                             raw rows that `sweeps.bundle.check`
                                                         predicts
    data/sweep/check.npy                                 the model's output for these rows in
                                                         training

The bundle of an ensemble has a model and a preprocessor for each member:

    data/sweep/members/TRIAL/model/                      as data/sweep/model/
    data/sweep/members/TRIAL/preprocessor.json, ...      as data/sweep/preprocessor.json, ...
"""
