"""Generated tables.

Each is difficult in a way of its own, and its name is the seed of all that is random in it.

The label depends on a score of the columns: a linear part, steps as in trees, waves, products of
two columns, a level for each category, and slopes that depend on a category. The parts have random
weights. Some columns do not matter at all.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pandas as pd

LABEL, DAY = "label", "day"
MATTER = 12  # At most so many columns of numbers matter.
DAYS = 730


@dataclass(frozen=True)
class Recipe:
    """The properties of a generated table.

    Attributes:
        rows: Number of rows.
        numbers: Number of columns of numbers.
        levels: Number of different texts of each column of texts.
        shares: Shares of the classes; () for a regression.
        signal: Standard deviation of the score, in units of the noise.
        matter: Number of columns of numbers that matter, at most `MATTER`.
        linear: True if the score is a sum of multiples of the columns.
        missing: Share of the cells that are empty.
        outliers: Share of the numbers that are a thousand times too large. The noise of a
            regression then has heavy tails.
        drift: True if the score changes with time, and some columns grow. The column `day` has the
            time.
    """

    rows: int
    numbers: int
    levels: tuple[int, ...] = ()
    shares: tuple[float, ...] = (0.5, 0.5)
    signal: float = 2.0
    matter: int = MATTER
    linear: bool = False
    missing: float = 0.0
    outliers: float = 0.0
    drift: bool = False

    @property
    def task(self) -> str:
        """`regression`, `binary` or `multiclass`."""
        if not self.shares:
            return "regression"
        return "binary" if len(self.shares) == 2 else "multiclass"


EQUAL_30 = (1 / 30,) * 30
HALVING_12 = tuple(2.0**-i for i in range(12))
RECIPES = {
    "made_small": Recipe(300, 8, (3, 6)),
    "made_small_regression": Recipe(400, 10, (4,), shares=()),
    "made_wide": Recipe(800, 400),
    "made_wide_regression": Recipe(600, 300, shares=(), signal=3.0),
    "made_rare": Recipe(20_000, 12, (5, 20), shares=(0.98, 0.02)),
    "made_very_rare": Recipe(100_000, 15, (8,), shares=(0.997, 0.003)),
    "made_many_levels": Recipe(20_000, 6, (10, 100, 1000, 3000)),
    "made_texts": Recipe(8_000, 0, (2, 3, 4, 6, 12, 30, 80), shares=(0.7, 0.3)),
    "made_noise": Recipe(5_000, 35, (4, 10), signal=0.5, matter=5),
    "made_noise_regression": Recipe(5_000, 35, (4, 10), shares=(), signal=0.4, matter=5),
    "made_drift": Recipe(30_000, 12, (6, 15), shares=(0.75, 0.25), drift=True),
    "made_drift_regression": Recipe(20_000, 10, (6,), shares=(), drift=True),
    "made_outliers": Recipe(10_000, 14, (5,), shares=(0.6, 0.4), outliers=0.01),
    "made_outliers_regression": Recipe(8_000, 12, (5,), shares=(), outliers=0.01),
    "made_many_classes": Recipe(12_000, 14, (6,), shares=EQUAL_30, signal=4.0),
    "made_unequal_classes": Recipe(8_000, 12, (8,), shares=HALVING_12, signal=3.0),
    "made_large": Recipe(300_000, 18, (5, 50), shares=(0.8, 0.2)),
    "made_large_regression": Recipe(300_000, 10, (20,), shares=()),
    "made_missing": Recipe(10_000, 16, (4, 12), missing=0.3),
    "made_linear": Recipe(6_000, 12, (3,), linear=True),
}


def generate(name: str) -> pd.DataFrame:
    """Return the generated table of a name, with the columns in random order and the label last."""
    return table_of(RECIPES[name], zlib.crc32(name.encode()))


def table_of(recipe: Recipe, seed: int) -> pd.DataFrame:
    """Return a random table that follows a recipe."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.random(recipe.rows))
    latent = rng.standard_normal((recipe.rows, recipe.numbers))
    texts = [_levels(recipe.rows, count, rng) for count in recipe.levels]
    if recipe.drift:
        latent[:, : recipe.numbers // 3] += 1.5 * time[:, None]
    score = _scores(recipe, latent, texts, rng)
    if recipe.drift:
        later = _scores(recipe, latent, texts, rng)
        score = (1 - time[:, None]) * score + time[:, None] * later
    label = _label(recipe, score, rng)
    columns: dict[str, np.ndarray] = {}
    for number in range(recipe.numbers):
        columns[f"n{number:03d}"] = _shown(latent[:, number], recipe, rng)
    for number, codes in enumerate(texts):
        columns[f"t{number:03d}"] = np.array([f"t{number}_{code:04d}" for code in codes], object)
    table = pd.DataFrame(columns)
    if recipe.missing:
        table = table.mask(rng.random(table.shape) < recipe.missing)
    table = table[rng.permutation(table.columns)]
    if recipe.drift:
        table[DAY] = (DAYS * time).astype(int)
    table[LABEL] = label
    return table.sample(frac=1.0, random_state=seed).reset_index(drop=True)


def _levels(rows: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return random codes below `count`.

    The second code is half as frequent as the first, the third a third, and so on.
    """
    shares = 1 / np.arange(1, count + 1)
    return rng.choice(count, size=rows, p=shares / shares.sum())


def _scores(
    recipe: Recipe, latent: np.ndarray, texts: list[np.ndarray], rng: np.random.Generator
) -> np.ndarray:
    """Return random scores with the standard deviation `recipe.signal`: one, or one for each of
    several classes.
    """
    outputs = len(recipe.shares) if recipe.task == "multiclass" else 1
    matter = latent[:, : recipe.matter]
    scores = [_score(recipe.linear, matter, texts, rng) for _ in range(outputs)]
    return recipe.signal * np.stack(scores, axis=1)


def _score(
    linear: bool, numbers: np.ndarray, texts: list[np.ndarray], rng: np.random.Generator
) -> np.ndarray:
    """Return a random score of the rows, with mean 0 and standard deviation 1."""
    count = numbers.shape[1]
    parts = [rng.standard_normal(codes.max() + 1)[codes] for codes in texts]
    if count:
        parts.append(numbers @ rng.standard_normal(count))
    if count and not linear:
        parts.append(_steps(numbers, rng))
        one, two, three = rng.integers(count, size=3)
        parts.append(np.sin(rng.uniform(1, 3) * numbers[:, one]))
        parts.append(numbers[:, two] * numbers[:, three])
        if texts:
            slopes = rng.standard_normal(texts[0].max() + 1)
            parts.append(slopes[texts[0]] * numbers[:, one])
    if not count:
        pair = texts[0] * (texts[1].max() + 1) + texts[1]
        parts.append(rng.standard_normal(pair.max() + 1)[pair])
    weights = rng.uniform(0.5, 1.5, len(parts))
    return _standard(sum(w * _standard(part) for w, part in zip(weights, parts, strict=True)))


def _steps(numbers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the sum of random boxes: a row is in a box if up to three of its numbers are on one
    side of a limit.
    """
    total = np.zeros(len(numbers))
    for _ in range(12):
        chosen = rng.integers(numbers.shape[1], size=rng.integers(1, 4))
        inside = (numbers[:, chosen] > rng.normal(0, 0.7, len(chosen))).all(axis=1)
        total += rng.standard_normal() * inside
    return total


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-12)


def _label(recipe: Recipe, score: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the label of each row."""
    if recipe.task == "regression":
        noise = rng.standard_t(3, len(score)) if recipe.outliers else rng.normal(size=len(score))
        return np.round(100 + 10 * (score[:, 0] + noise), 3)
    shares = np.array(recipe.shares) / sum(recipe.shares)
    if recipe.task == "binary":
        noisy = score[:, 0] + rng.logistic(size=len(score))
        return np.where(noisy > np.quantile(noisy, shares[0]), "yes", "no").astype(object)
    noisy = score + np.log(shares) + rng.gumbel(size=score.shape)
    return np.array([f"c{code:02d}" for code in noisy.argmax(axis=1)], object)


def _shown(latent: np.ndarray, recipe: Recipe, rng: np.random.Generator) -> np.ndarray:
    """Return a column of numbers as the table shows it: on a scale of its own, rounded or skewed,
    perhaps with outliers.
    """
    form = rng.integers(4)
    if form == 0:
        shown = np.round(np.exp(latent), 3)
    elif form == 1:
        shown = np.round(50 + 15 * latent)
    else:
        shown = np.round(10.0 ** rng.integers(-2, 4) * (latent + rng.normal()), 5)
    far = rng.random(len(latent)) < recipe.outliers
    return np.where(far, 1000 * shown, shown)
