"""The columns of a label.

A label is the name of one column, or a tuple of the names of several columns.
"""

from collections.abc import Sequence

Label = str | tuple[str, ...]
LabelValue = bool | int | float | str
# The classes of a label: its different values, indexed by their codes
Classes = tuple[LabelValue, ...]
# The tasks of a label of several columns: each column has the values 0 and 1 (or false and true),
# or each column has numbers.
MULTILABEL = "multilabel"
MULTIOUTPUT = "multioutput"
SEVERAL_COLUMNS = (MULTILABEL, MULTIOUTPUT)

# Name of the column with the number of each row's group, which a trainer with a ranking objective
# gets; see `data.group`.
GROUP_COLUMN = "sweeps_query"


def label_columns(label: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of a label's columns: () without a label."""
    if label is None:
        return ()
    return (label,) if isinstance(label, str) else tuple(label)


def label_text(label: str | Sequence[str] | None) -> str:
    """Return the names of a label's columns for a message, each in backticks."""
    return ", ".join(f"`{name}`" for name in label_columns(label))
