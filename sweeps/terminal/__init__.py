"""Output for the terminal: the live view of a running sweep, and the texts that commands print."""
