"""Read columns as numbers, texts, labels and weights, with their missing values."""
