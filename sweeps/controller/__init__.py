"""Decide what a running sweep does next, and carry it out.

The process that runs a sweep is called its driver.
"""
