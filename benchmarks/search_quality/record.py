"""Train a grid of configurations once, and save all learning curves: `python -m
benchmarks.search_quality.record [TABLE ...]`.

There are five grids: XGBoost on breast cancer, digits and California housing, and a perceptron on
digits and California housing. Each curve has the validation loss at 27 steps. Each table is added
to `curves.npz` when it is complete.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

from benchmarks.search_quality.tasks import CURVES, NAMES, STEPS

CALIFORNIA = "shared/data/california_housing/housing.csv"  # in ../shared beside the checkout
XGB = {
    "eta": [0.003, 0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 0.9],
    "depth": [1, 2, 3, 5, 7, 10],
    "subsample": [0.3, 0.6, 1.0],
    "weight": [0.1, 1.0, 5.0, 20.0],
    "columns": [0.3, 0.7, 1.0],
}
MLP = {
    "lr": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3],
    "width": [8, 24, 72, 216],
    "batch": [16, 64, 256],
    "decay": [0.0, 1e-4, 1e-2],
    "dropout": [0.0, 0.25, 0.5],
}
ROUNDS = 3  # boosting rounds in one step


def data(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Return standardized train and valid rows, and the number of classes (1 for a regression)."""
    import pandas as pd
    from sklearn import datasets

    rng = np.random.RandomState(0)
    if name == "california":
        columns = [
            folder / CALIFORNIA
            for folder in Path(__file__).parents
            if (folder / CALIFORNIA).exists()
        ]
        table = pd.read_csv(columns[0]).dropna()
        table = table.select_dtypes("number").sample(2400, random_state=0)
        x, y, classes = table.iloc[:, :-1].to_numpy(float), table.iloc[:, -1].to_numpy(float), 1
        y = (y - y.mean()) / y.std()
    else:
        x, y = getattr(datasets, {"cancer": "load_breast_cancer", "digits": "load_digits"}[name])(
            return_X_y=True
        )
        classes = int(y.max()) + 1
    order = rng.permutation(len(x))
    x, y = ((x - x.mean(0)) / (x.std(0) + 1e-9))[order], y[order]
    cut = int(0.7 * len(x))
    return x[:cut], y[:cut], x[cut:], y[cut:], classes


def boosted(name: str) -> np.ndarray:
    """Return the curves of XGBoost, as an array (8, 6, 3, 4, 3, 27)."""
    import xgboost as xgb

    xt, yt, xv, yv, classes = data(name)
    train, valid = xgb.DMatrix(xt, yt), xgb.DMatrix(xv, yv)
    task = {"objective": "reg:squarederror", "eval_metric": "rmse"}
    if classes == 2:
        task = {"objective": "binary:logistic", "eval_metric": "logloss"}
    elif classes > 2:
        task = {"objective": "multi:softprob", "eval_metric": "mlogloss", "num_class": classes}
    rounds = 1 if classes > 2 else ROUNDS
    curves = []
    for eta, depth, subsample, weight, columns in itertools.product(*XGB.values()):
        params = {
            "eta": eta,
            "max_depth": depth,
            "subsample": subsample,
            "min_child_weight": weight,
            "colsample_bytree": columns,
        }
        history: dict = {}
        more = {"nthread": 1, "tree_method": "hist", "max_bin": 32, "seed": 0}
        xgb.train(
            params | task | more,
            train,
            rounds * STEPS,
            evals=[(valid, "valid")],
            evals_result=history,
            verbose_eval=False,
        )
        curves.append(history["valid"][task["eval_metric"]][rounds - 1 :: rounds])
    return np.array(curves).reshape(*map(len, XGB.values()), STEPS)


def perceptron(name: str) -> np.ndarray:
    """Return the curves of a perceptron with one hidden layer, as an array (8, 4, 3, 3, 3, 27).

    Perceptrons that differ only in the learning rate are trained together.
    """
    import torch

    torch.set_num_threads(1)
    xt, yt, xv, yv, classes = data(name)
    tensors = [
        torch.as_tensor(a, dtype=torch.float32 if classes == 1 or a.ndim == 2 else torch.long)
        for a in (xt, yt, xv, yv)
    ]
    xt, yt, xv, yv = tensors
    rates = torch.tensor(MLP["lr"]).view(-1, 1, 1)
    loss_of = torch.nn.functional.mse_loss if classes == 1 else torch.nn.functional.cross_entropy
    curves = np.empty((*map(len, MLP.values()), STEPS))
    for (a, width), (b, batch), (c, decay), (d, dropout) in itertools.product(
        *(enumerate(v) for k, v in MLP.items() if k != "lr")
    ):
        generator = torch.Generator().manual_seed(0)
        n = len(rates)
        shapes = [(xt.shape[1], width), (1, width), (width, classes), (1, classes)]
        weights = [
            (torch.randn(1, *s, generator=generator) / s[0] ** 0.5 * (s[0] > 1))
            .repeat(n, 1, 1)
            .requires_grad_()
            for s in shapes
        ]
        speeds = [torch.zeros_like(w) for w in weights]

        def forward(
            x: torch.Tensor, mask: torch.Tensor | float, weights: list = weights
        ) -> torch.Tensor:
            hidden = torch.relu(torch.matmul(x, weights[0]) + weights[1]) * mask
            return torch.matmul(hidden, weights[2]) + weights[3]

        def losses(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.stack([loss_of(o.squeeze(-1) if classes == 1 else o, y) for o in out])

        for step in range(STEPS):
            order = torch.randperm(len(xt), generator=generator)
            for i in range(0, len(xt) - batch + 1, batch):
                rows = order[i : i + batch]
                mask = (torch.rand(1, batch, width, generator=generator) >= dropout).float() / (
                    1 - dropout
                )
                grads = torch.autograd.grad(
                    losses(forward(xt[rows], mask), yt[rows]).sum(), weights
                )
                with torch.no_grad():
                    for w, v, g in zip(weights, speeds, grads, strict=True):
                        v.mul_(0.9).add_(g.clamp(-5, 5) + decay * w)
                        w.sub_(rates * v)
            with torch.no_grad():
                curves[:, a, b, c, d, step] = losses(forward(xv, 1.0), yv).numpy()
    worst = np.nanquantile(curves[np.isfinite(curves)], 0.99)
    return np.minimum(np.nan_to_num(curves, nan=worst, posinf=worst), worst)


def main(names: list[str]) -> None:
    for name in names or NAMES:
        kind, what = name.split("_")
        recorded = (boosted if kind == "xgb" else perceptron)(what)
        kept = dict(np.load(CURVES)) if CURVES.exists() else {}
        kept[name] = np.float32(np.round(recorded, 4))
        np.savez_compressed(CURVES, **kept)
        print(name, recorded.shape, "best", recorded.min().round(4), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
