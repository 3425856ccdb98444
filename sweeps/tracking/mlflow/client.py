"""MLflow's client, which is given no text that cannot be encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweeps.core import errors


class Client:
    """MLflow's client. Every text that it is given is made encodable first.

    Args:
        uri: tracking URI.
    """

    def __init__(self, uri: str):
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(uri)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._client, name)
        if name == "log_artifact":  # the path of a file must stay as the disk has it
            return call
        return lambda *args, **kwargs: call(*encodable(list(args)), **encodable(kwargs))


def encodable(given: Any) -> Any:
    """Return a text, or what holds texts, with a backslash escape for each character that UTF-8 cannot encode.

    Such a character is a lone surrogate, as `os.fsdecode` makes of bytes that are not UTF-8. A database refuses the whole batch.

    >>> encodable({"name": ["caf\\udce9", 1]})
    {'name': ['caf\\\\udce9', 1]}
    """
    from mlflow.entities import Param, RunTag

    if isinstance(given, str):
        return errors.make_encodable(given)
    if isinstance(given, dict):
        return {encodable(key): encodable(value) for key, value in given.items()}
    if isinstance(given, list):
        return [encodable(part) for part in given]
    if isinstance(given, Param | RunTag):
        return type(given)(encodable(given.key), encodable(given.value))
    return given
