"""References to user code, plug-ins, and the files that describe trainers."""
