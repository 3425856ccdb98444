"""The rows on which a trial is trained again."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RefitRows:
    """The rows on which a trial is trained again, after the search.

    Attributes:
        splits: Names of the splits whose rows are joined, `train` first.
        folder: Folder that gets the fitted chain, in its subfolder `prepared`.
        division: 0 for the train and valid of the search. Each other number stands for another
            random division of their rows; see `redivide`.
    """

    splits: tuple[str, ...]
    folder: str
    division: int = 0
