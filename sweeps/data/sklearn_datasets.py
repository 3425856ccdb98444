"""List the columns of the data sets in scikit-learn without importing scikit-learn. A test compares these lists with scikit-learn."""

from __future__ import annotations

_CELL_MEASURES = (
    *("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points", "symmetry"),
    "fractal dimension",
)
_COLUMNS = {
    "breast_cancer": (
        *(f"mean {n}" for n in _CELL_MEASURES),
        *(f"{n} error" for n in _CELL_MEASURES),
        *(f"worst {n}" for n in _CELL_MEASURES),
    ),
    "diabetes": ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
    "digits": tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
    "iris": ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"),
    "wine": (
        *("alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids", "nonflavanoid_phenols"),
        *("proanthocyanins", "color_intensity", "hue", "od280/od315_of_diluted_wines", "proline"),
    ),
}
NAMES = tuple(_COLUMNS)


def feature_names(name: str) -> tuple[str, ...]:
    """Return the names of the features in a data set, such as "iris". In all data sets, the label is called `target`."""
    return _COLUMNS[name]
