"""List, show, compare, control and repair sweeps, and mirror a sweep to its store."""
