"""Format durations for people."""


def format_clock(seconds: float) -> str:
    """Format seconds as `1:05` or `1:00:05`."""
    seconds = int(seconds)
    if seconds >= 3600:
        return f"{seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"
    return f"{seconds // 60}:{seconds % 60:02d}"
