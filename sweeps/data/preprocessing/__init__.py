"""Preprocessing steps: fitting a chain of steps, applying a fitted chain, and storing it."""
