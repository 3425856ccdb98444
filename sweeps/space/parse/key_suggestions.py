"""Table of names in Ray Tune, Optuna, W&B and scikit-learn, with the space file's name for each.

Error messages suggest these names.
"""

from collections.abc import Iterable, Mapping

from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.yaml.scalars import Scalar

_LOOP = (
    "write a loop, as docs/how-to/own-loop.md shows, and name the loop: trainer: {loop: "
    '"my_loop:train_func", backend: %s}'
)
# An encoder that returns no missing values.
UNSEEN = (
    '{"sklearn.preprocessing:OrdinalEncoder": {handle_unknown: use_encoded_value, unknown_value: '
    "-1, encoded_missing_value: -2}}"
)

_STOPPING = (
    "write `scheduler: {name: asha, max_t: 100}` to stop poor trials, or `limits: {patience: 10}` "
    "to end the sweep"
)
_WHEN = "write `when` beside a domain: {uniform: [0, 1], when: {params.booster: dart}}"
_KEEPS_SHARES = (
    "leave this key out, because a fraction such as `valid: 0.2` keeps the share of each class"
)
_PBT_PERTURBS = (
    "leave this key out, because pbt changes the sampled dimensions of `space: {params: ...}`"
)
_ALGORITHM = (
    "write `search: {algorithm: auto}`, or tpe, gp, random, grid, qmc, cmaes, nsga2 in place of "
    "auto"
)

_SKLEARN_STEPS = (
    "preprocessing:QuantileTransformer preprocessing:PolynomialFeatures "
    "preprocessing:SplineTransformer preprocessing:TargetEncoder "
    "preprocessing:Binarizer impute:KNNImputer decomposition:PCA decomposition:TruncatedSVD "
    "feature_selection:SelectKBest "
    "feature_selection:VarianceThreshold"
)

# For each place in the space file: our name or the hint to show, and the names in other tools with
# this meaning. Case, `_` and `-` are ignored.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "domain": {
        "grid": "grid_search",
        "choice": "categorical suggest_categorical",
        "randn": "normal",
        "qrandn": "qnormal",
        "randint": "int int_uniform suggest_int range",
        "loguniform": "log_uniform reverse_loguniform",
        "uniform": "float suggest_float interval",
    },
    "file": {
        _WHEN: "when",
        "write `objective: {metric: ..., goal: minimize}`, or a list of such mappings": (
            "metric mode direction directions"
        ),
        "write `limits: {max_trials: N}`": "num_samples n_trials run_cap",
        "write `limits: {max_concurrent_trials: N}`": "n_jobs",
        "write `limits: {timeout: 1h}`": "time_budget_s",
        _ALGORITHM: "sampler method search_alg algorithm",
        "write `search: {seed: 0}`": "seed random_state",
        _STOPPING: "pruner early_terminate early_stopping",
        "write `scheduler: {max_t: N}`, which counts reports": "epochs",
        "write `space: {params: ...}`": (
            "param_space parameters hyperparameters params config train_loop_config"
        ),
        "write `space: {preprocessor: [...]}`": "preprocessor preprocessing pipeline",
        "write `space: {scaling: {num_workers: 2}}`": "scaling scaling_config num_workers",
        "write `space: {scaling: {resources_per_worker: {CPU: 1}}}`": (
            "resources_per_trial resources"
        ),
        "data": "dataset datasets",
        "trainer": "model",
        'write `trainer: {loop: "my_loop:train_func"}`': "program",
        'write `trainer: {trainable: "my_mod:MyTrainable"}`': "trainable",
        "name": "project study_name experiment",
        "use the option --storage URL of `sweeps run`": "storage",
        "use the option --tracking-uri URI of `sweeps run`": "tracking_uri",
        "sweeps logs to MLflow by default; --tracking-uri URI sets the server, and `trackers: []` "
        "turns MLflow off": "mlflow",
        'write `trackers: [mlflow, "my_mod:Tracker"]`': "callbacks",
        "trackers": "tracker logger loggers tracking",
        "write `trackers: [mlflow, tensorboard]`": "tensorboard",
    },
    "trainer.name": {
        "lightgbm": "lgbm lgb",
        "xgboost": "xgb",
        "torch": "pytorch",
        "torch_tabular": "mlp",
        "lightning": "pytorchlightning pl",
        "transformers": "huggingface hf",
        "take `keras`, or " + _LOOP % "tensorflow": "tensorflow",
        _LOOP % "jax": "jax flax",
        'name the estimator, such as trainer: "sklearn.ensemble:RandomForestClassifier"': (
            "scikit-learn random_forest"
        ),
    },
    "trainer": {
        "loop": "function func fn train_func train_loop_per_worker",
        "write a built-in trainer as its name alone, such as `trainer: xgboost`": "name type",
        "put parameters under `space: {params: ...}`": "params train_loop_config",
        "write `space: {scaling: {num_workers: 2}}`": "num_workers scaling_config",
    },
    "data": {
        "label": "target target_column label_column y",
        "train": "path file source",
        "valid": "val validation validation_split dev eval",
        "test": "test_size holdout",
        "drop": "exclude ignore",
        "every column but the label is a feature; `drop` leaves columns out": "features columns",
        "rows": "sample frac",
        "positive": "pos_label positive_class positive_label",
        "use `data.group`": "groups group_column group_id qid query query_id",
        "task": "problem_type",
        "drop_missing_label": "dropna",
        "missing": "na_values missing_values null_values",
        "weight": "sample_weight sample_weights weights weight_column",
        "class_weight": "class_weights balance auto_class_weights",
        "write `search: {seed: 0}`": "seed",
        "leave this key out, because a fraction such as `valid: 0.2` takes random rows": "shuffle",
        _KEEPS_SHARES: "stratify",
        "this is a parameter of the loop: write `space: {params: {batch_size: 32}}`": "batch_size",
    },
    "objective": {"goal": "mode direction", "metric": "name"},
    "objective.goal": {"minimize": "min lower", "maximize": "max higher"},
    "search": {
        "algorithm": "sampler method name type search_alg",
        "seed": "random_state",
        "initial_points": "points_to_evaluate",
        "from": "warm_start prior_runs",
        "write `limits: {max_trials: N}`": "num_samples n_trials max_trials",
        "write `options: {n_startup_trials: 10}`": "n_startup_trials",
        _STOPPING: "pruner",
        "the scheduler is a section of the file, beside `search`": "scheduler",
        "write `objective: {metric: ..., goal: minimize}`": "metric mode direction",
    },
    "search.algorithm": {
        "gp": "bayes bayesian bayesopt botorch ax skopt GPSampler",
        "tpe": "hyperopt optuna bohb TPESampler",
        "random": "random_search RandomSampler",
        "grid": "grid_search GridSampler",
        "qmc": "sobol QMCSampler",
        "cmaes": "cma CmaEsSampler",
        "nsga2": "nsgaii NSGAIISampler",
    },
    "scheduler": {
        "max_t": "max_iter max_epochs max_resource num_epochs",
        "grace_period": "min_iter min_resource n_warmup_steps",
        "reduction_factor": "eta",
        "min_trials": "n_startup_trials min_samples_required",
        "leave this key out, because a step is one report of the loop": "time_attr interval_steps",
        "write `objective: {metric: ..., goal: minimize}`": "metric mode",
        "write `limits: {patience: 10}`": "patience",
        "write `name: asha` to stop poor trials, or `limits: {patience: 10}` to end the sweep": (
            "early_stopping"
        ),
        _PBT_PERTURBS: "hyperparam_mutations",
    },
    "scheduler.name": {
        "asha": "ASHAScheduler AsyncHyperBandScheduler async_hyperband successive_halving "
        "SuccessiveHalvingPruner pasha progressive_asha",
        "hyperband": "HyperbandPruner HyperBandScheduler bohb",
        "median": "MedianPruner MedianStoppingRule median_stopping",
        "pbt": "PopulationBasedTraining pb2",
        "none": "fifo NopPruner",
    },
    "runtime_env": {
        "env_vars": "env environment variables",
        "pip": "packages requirements dependencies uv conda",
        "image_uri": "image container docker",
    },
    "limits": {
        "max_trials": "num_samples n_trials trials max_runs run_cap",
        "timeout": "time_budget_s max_time",
        "max_concurrent_trials": "n_jobs concurrency max_concurrent",
        "max_failures": "retries max_retries",
        "patience": "early_stopping",
        "write `scheduler: {max_t: N}`": "max_t",
        "write `scheduler: {max_t: N}`, which counts reports": "epochs",
    },
    "checkpoints": {
        "per_trial": "num_to_keep keep",
        "the loop decides when it reports a checkpoint": "checkpoint_frequency",
    },
    "bundle": {"train_on": "refit refit_full retrain"},
    "space": {
        "params": "parameters hyperparameters param_space config train_loop_config",
        "preprocessor": "preprocessing preprocessors pipeline transforms",
        "scaling": "scaling_config resources",
        _WHEN: "when",
        "`data` is a section at the top of the file; its keys train, drop and rows can be tuned "
        "there": "data",
        "write `scaling: {num_workers: 2}`": "num_workers",
        "write `scaling: {use_gpu: true}`": "use_gpu",
    },
    "scaling": {
        "num_workers": "workers n_jobs",
        "use_gpu": "gpu gpus",
        "write `resources_per_worker: {GPU: 1}`": "num_gpus num_gpus_per_worker",
        "write `resources_per_worker: {CPU: 1}`": "cpus num_cpus num_cpus_per_worker",
        "resources_per_worker": "resources_per_trial",
        "leave this key out, because only workers hold resources": "trainer_resources",
        "leave this key out, because sweeps places the workers": "placement_strategy",
    },
    "step": {
        "StandardScaler": "Scaler ZScore Standardize Standardizer",
        "`StandardScaler` or `MinMaxScaler` scales a column; `Normalizer` scales each row to a "
        "norm of 1": "Normalize Normalization",
        "MinMaxScaler": "MinMax",
        "SimpleImputer": "Imputer fillna",
        "OneHotEncoder": "OneHot get_dummies",
        "UniformKBinsDiscretizer": "KBinsDiscretizer",
        "HashingVectorizer": "CountVectorizer TfidfVectorizer",
        "leave this step out, because sweeps encodes the label": "LabelEncoder",
        "write a function of your own, and name it `module:function`": (
            "LogTransformer TorchVisionPreprocessor"
        ),
        "write the function itself, as `module:function`": "FunctionTransformer BatchMapper",
        "leave this step out, because each worker gets an equal part of the rows": "Repartitioner",
        "leave this step out, because a split by a fraction takes random rows": "RandomShuffler",
        "leave this step out, because a list of steps is a chain": "Pipeline make_pipeline Chain",
        "leave this step out, because each step has the parameter `columns`": "ColumnTransformer",
        "write `data: {drop: [...]}`": "Drop DropColumns",
        "none": "passthrough",
        **{f"write `sklearn.{ref}`": ref.partition(":")[2] for ref in _SKLEARN_STEPS.split()},
    },
    "OrdinalEncoder": {
        "this encoder turns an unseen category into a missing value; "
        f"scikit-learn's encoder has this parameter: {UNSEEN}": "handle_unknown unknown_value"
    },
    "OneHotEncoder": {
        "leave this parameter out, because an unseen category becomes zeros": "handle_unknown",
        "scikit-learn's encoder has this parameter: `sklearn.preprocessing:OneHotEncoder`": "drop",
        "max_categories": "min_frequency",
    },
    "StandardScaler": {
        "scikit-learn's scaler has this parameter: `sklearn.preprocessing:StandardScaler`": (
            "with_mean with_std"
        )
    },
    "MinMaxScaler": {
        "scikit-learn's scaler has this parameter: `sklearn.preprocessing:MinMaxScaler`": (
            "feature_range"
        )
    },
    "SimpleImputer.strategy": {
        'for median, use scikit-learn: {"sklearn.impute:SimpleImputer": {strategy: median, '
        "columns: numeric}}": "median"
    },
}
# For each place: the text to suggest for each name of another tool. A single word is shown as "did
# you mean `word`?". A text of several words is shown unchanged.
SUGGESTIONS = {
    place: {name: word for word, names in words.items() for name in names.split()}
    for place, words in _NAMES.items()
}


_NNI = (
    "an experiment of NNI: the search space goes to `space.params`, tuner to `search`, assessor to "
    "`scheduler`, trialCommand to `trainer`"
)
_SAGEMAKER = (
    "a tuning job of SageMaker: ParameterRanges goes to `space.params`, the objective to "
    "`objective`, ResourceLimits to `limits`"
)
_WANDB = "a sweep of W&B: `sweeps init --from-wandb FILE` translates it"
# Descriptions of files of other tools, and the places of their keys. A file is recognized by keys
# that only this tool has together at the top of its files.
FOREIGN_FILES = {
    "apiversion kind spec": "a Kubernetes resource, such as a Katib experiment: spec.parameters "
    "goes to `space.params`, spec.objective to `objective`, spec.algorithm to `search`, "
    "spec.maxTrialCount to `limits`, the command of spec.trialTemplate to `trainer`",
    "hyperparameters searcher": "a file of Determined: hyperparameters goes to `space.params`, "
    "searcher to `objective`, `scheduler` and `limits`, entrypoint to `trainer`",
    "hydra": "a file of Hydra: hydra.sweeper.params goes to `space.params`, its direction to "
    "`objective`, its n_trials to `limits`",
    "defaults": "a file of Hydra: the keys that the script needs go to `space.params`, and the "
    "script goes to `trainer`",
    "samplingalgorithm searchspace": "a sweep job of Azure ML: search_space goes to "
    "`space.params`, sampling_algorithm to "
    "`search`, early_termination to `scheduler`, trial.command to `trainer`",
    "searchspace trialcommand": _NNI,
    "searchspacefile trialcommand": _NNI,
    "parameterranges": _SAGEMAKER,
    "hyperparametertuningjobconfig": _SAGEMAKER,
    "studyspec": "a tuning job of Vertex AI: studySpec.parameters goes to `space.params`, "
    "studySpec.metrics to `objective`, maxTrialCount to `limits`, trialJobSpec to `trainer`",
    "method parameters": _WANDB,
    "parameters program": _WANDB,
    "component matrix": "a file of Polyaxon: matrix.params goes to `space.params`, matrix.metric "
    "to `objective`, the container's command to `trainer`",
    "algorithm parameters spec": "a configuration of Comet's optimizer: parameters goes to "
    "`space.params`, algorithm to `search`, spec.metric and spec.objective to `objective`",
    "inputfeatures outputfeatures": "a file of Ludwig: hyperopt.parameters goes to `space.params`, "
    "hyperopt.metric to `objective`, hyperopt.executor to `limits`",
    "tuneconfig": "a file of Ray Tune: param_space goes to `space.params`, tune_config to "
    "`objective`, `search`, `scheduler` and `limits`",
    "config run stop": "a file of Ray Tune: config goes to `space.params`, stop to `scheduler`, "
    "num_samples to `limits`, run to `trainer`",
}


def foreign_file(keys: Iterable[Scalar]) -> str | None:
    """Return a line about a file of another tool, given the keys at its top.

    Return None for any other file.
    """
    names = {normalize(str(key)) for key in keys}
    if names & {"trainer", "space"}:
        return None
    for keys_of_tool, text in FOREIGN_FILES.items():
        if {*keys_of_tool.split()} <= names:
            return f"not a space file, but {text}; docs/get-started.md shows a space file"
    return None


def normalize(name: str) -> str:
    """Return a name in lower case, without `_` and `-`."""
    return name.replace("_", "").replace("-", "").lower()


def our_name(place: str, name: Scalar) -> str | None:
    """Return the space file's word for a name of another tool, or a hint.

    A hint is a text such as "write `limits: {max_trials: N}`". Return None if the table does not
    have the name.

    Args:
        place: Place of the name in the space file: a key of `SUGGESTIONS`, such as
            "scheduler.name".
        name: The name as the user wrote it.
    """
    for other_name, word in SUGGESTIONS.get(place, {}).items():
        if normalize(other_name) == normalize(str(name)):
            return word
    return None


def suggest(place: str, name: Scalar, valid: Iterable[str], unmatched: str | None = None) -> str:
    """Return the end of a message about an unknown name, such as "did you mean `asha`?".

    It suggests the space file's word for another tool's name, else a similar valid name. If there
    is neither, see `did_you_mean`.

    Args:
        place: Place of the name in the space file, such as "scheduler.name". If `SUGGESTIONS` does
            not have this place, names of other tools are not looked up.
        name: The name as the user wrote it.
        valid: The valid names at this place.
        unmatched: The text if there is nothing to suggest; None for a list of all valid names.
    """
    valid = list(valid)
    by_normalized = {normalize(word): word for word in valid}
    word = our_name(place, name) or by_normalized.get(normalize(str(name)))
    if word is None:
        return did_you_mean(name, valid, unmatched)
    return word if " " in word else f"did you mean `{word}`?"
