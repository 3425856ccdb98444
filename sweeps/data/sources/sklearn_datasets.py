"""List the columns and classes of the data sets in scikit-learn without importing scikit-learn.

A test compares them with scikit-learn.
"""

_CELL_MEASURES = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
# The features of each data set. In all data sets, the label is called `target`.
COLUMNS: dict[str, tuple[str, ...]] = {
    "breast_cancer": (
        *(f"mean {n}" for n in _CELL_MEASURES),
        *(f"{n} error" for n in _CELL_MEASURES),
        *(f"worst {n}" for n in _CELL_MEASURES),
    ),
    "diabetes": ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
    "digits": tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
    "iris": ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"),
    "wine": (
        "alcohol",
        "malic_acid",
        "ash",
        "alcalinity_of_ash",
        "magnesium",
        "total_phenols",
        "flavanoids",
        "nonflavanoid_phenols",
        "proanthocyanins",
        "color_intensity",
        "hue",
        "od280/od315_of_diluted_wines",
        "proline",
    ),
}
# Number of classes of the label. A data set that is not listed here is for a regression.
_CLASSES = {"breast_cancer": 2, "digits": 10, "iris": 3, "wine": 3}


def label_task(name: str, requested: str | None) -> tuple[str, tuple[int, ...] | None] | None:
    """Return the task and the classes of the label `target`, as `label_checks.infer_task` does.

    Return None if `requested` does not fit.

    Args:
        name: Name of the data set.
        requested: The task that the space file sets. None if it sets no task.
    """
    count = _CLASSES.get(name)
    task = requested or {None: "regression", 2: "binary"}.get(count, "multiclass")
    if task == "regression":
        return task, None
    if count is None or (task == "binary" and count != 2):
        return None
    return task, tuple(range(count))
