"""Spaces, tables and functions that Python scripts pass, and their saved form."""
