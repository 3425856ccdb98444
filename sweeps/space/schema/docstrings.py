"""Read the summary and the sections of Google-style docstrings."""

import inspect
import re


def summary(text: str | None) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def section(text: str | None, title: str) -> dict[str, str]:
    """Return the entries of one section of a docstring.

    Args:
        text: A docstring, or None.
        title: Title of the section, such as `Attributes`.

    Returns:
        The description of each entry as one line, by the name of the entry. Empty if the docstring
        has no such section.
    """
    # The lines of the section, which are indented.
    match = re.search(
        rf"^{title}:\n((?:[ \t]+.*\n?|\n)+)", inspect.cleandoc(text or ""), re.MULTILINE
    )
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in match[1].splitlines() if match else ():
        if entry := re.match(r" {4}(\w[\w, ]*): (.*)", line):  # `name: text` or `name, name: text`
            names = [name.strip() for name in entry[1].split(",")]
            entries.update(dict.fromkeys(names, entry[2].strip()))
        elif line.strip():
            for name in names:
                entries[name] += " " + line.strip()
    return entries
