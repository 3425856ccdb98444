"""Summarize the columns of a table, and find what makes a model worse."""
