"""The names of scikit-learn's scorers, by the tasks of their metrics."""

from __future__ import annotations

from typing import Literal

from .label_columns import MULTILABEL, MULTIOUTPUT

CLASSIFICATION = ("binary", "multiclass")
REGRESSION = ("regression",)
# The tasks of metrics that compare numbers. In a binary task, these are the label, 0 or 1, and the
# probability of class 1.
NUMERIC = ("binary", "regression", MULTIOUTPUT)

Input = Literal["classes", "scores", "probabilities"]

# The names of scikit-learn's scorers: the tasks, `Metric.needs` and the names.
# `tests/core/test_metrics.py` compares them with scikit-learn's.
SCORER_NAMES: tuple[tuple[tuple[str, ...], Input, str], ...] = (
    (
        ("binary",),
        "classes",
        """
        f1 jaccard neg_negative_likelihood_ratio positive_likelihood_ratio precision recall
        """,
    ),
    (("binary",), "scores", "roc_auc"),
    (CLASSIFICATION, "classes", "accuracy balanced_accuracy matthews_corrcoef"),
    (
        (*CLASSIFICATION, MULTILABEL),
        "classes",
        """
        f1_macro f1_micro f1_weighted
        jaccard_macro jaccard_micro jaccard_weighted
        precision_macro precision_micro precision_weighted
        recall_macro recall_micro recall_weighted
        """,
    ),
    (CLASSIFICATION, "scores", "average_precision"),
    (
        CLASSIFICATION,
        "probabilities",
        """
        d2_brier_score d2_log_loss_score neg_brier_score neg_log_loss
        roc_auc_ovo roc_auc_ovo_weighted roc_auc_ovr roc_auc_ovr_weighted
        """,
    ),
    (("multiclass",), "scores", "top_k_accuracy"),  # k is 2
    (
        REGRESSION,
        "probabilities",
        "neg_max_error neg_mean_gamma_deviance neg_mean_poisson_deviance",
    ),
    (
        (*REGRESSION, MULTIOUTPUT),
        "probabilities",
        """
        d2_absolute_error_score explained_variance r2 neg_median_absolute_error
        neg_mean_absolute_error neg_mean_absolute_percentage_error neg_mean_squared_error
        neg_mean_squared_log_error neg_root_mean_squared_error neg_root_mean_squared_log_error
        """,
    ),
    ((MULTILABEL,), "classes", "f1_samples jaccard_samples precision_samples recall_samples"),
    (
        ("clustering",),
        "classes",
        """
        adjusted_mutual_info_score adjusted_rand_score completeness_score fowlkes_mallows_score
        homogeneity_score mutual_info_score normalized_mutual_info_score rand_score v_measure_score
        """,
    ),
)
