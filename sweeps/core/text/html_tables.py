"""Small HTML tables for notebooks."""

from collections.abc import Iterable


def facts_table(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a table with a name and a value in each row. Floats have six significant digits."""
    import pandas as pd

    rows = [
        (name, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in pairs
    ]
    return str(pd.DataFrame(rows).to_html(header=False, index=False))
