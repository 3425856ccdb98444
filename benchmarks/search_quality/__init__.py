"""How good is the search, replayed under a simulated clock beside others. `python -m benchmarks.search_quality --help`."""
