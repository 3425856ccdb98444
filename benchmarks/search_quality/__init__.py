"""Quality of the search, compared with other tools in replays under a simulated clock: `python -m
benchmarks.search_quality --help`.
"""
