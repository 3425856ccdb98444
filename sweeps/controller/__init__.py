"""One sweep from its start to its result."""
