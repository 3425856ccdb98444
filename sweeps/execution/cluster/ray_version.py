"""Ray versions on which the contract test has passed, and a warning for other versions.

The modules of `sweeps.execution.ray_apis` and the other modules of this folder use private parts of
Ray. The contract test, tests/execution/test_ray_train_adapter.py, shows what a new Ray version
breaks. After the test passes on a new version, update `TESTED` here and the bounds of `ray` in
pyproject.toml.
"""

import functools
import sys

TESTED = ("2.60",)


def warning_for(version: str) -> str | None:
    """Return the warning for a Ray version on which the contract test has not passed.

    Return None for a tested version.

    >>> warning_for("2.60.1") is None
    True
    """
    if ".".join(version.split(".")[:2]) in TESTED:
        return None
    return (
        f"warning: Ray {version} is installed, but sweeps was tested only with Ray "
        f"{', '.join(f'{minor}.*' for minor in TESTED)}; "
        "trials may fail. To install a tested version: pip install "
        f"'ray[default,tune,train,data]=={TESTED[-1]}.*'"
    )


@functools.cache
def warn_once(version: str) -> None:
    """Print the warning for a Ray version on stderr, once in this process."""
    if (text := warning_for(version)) is not None:
        print(text, file=sys.stderr)
