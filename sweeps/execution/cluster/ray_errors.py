"""Texts of Ray's errors, as parts of one-line messages."""


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text, or of its cause, that is not blank.

    For a version mismatch, all lines are joined, because the last line does not explain the error.
    If the text is blank, return the name of the error's class.
    """
    text = str(error.__cause__ or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and "mismatch" in lines[0].lower():
        return " ".join(lines)
    return lines[-1] if lines else type(error).__name__
