"""Export a trained model from a sweep that has ended, or train a trial again."""
