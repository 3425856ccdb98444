"""Allocate nodes, start worker processes, and keep gangs of workers warm."""
