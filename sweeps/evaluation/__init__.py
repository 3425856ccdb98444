"""Intervals for the score of an exported model on new rows."""
