"""Split rows into train, valid and test, into folds, and into variants of the data."""
