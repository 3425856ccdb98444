"""Run loops that call `ray.tune` or `ray.train` as trials of a sweep."""
