"""Secrets that the processes of a session need."""

from collections.abc import Mapping
from pathlib import Path

from sweeps.core.errors import InputError
from sweeps.core.files.stores import is_address, needed_environment, store_of
from sweeps.core.text.secrets import hide_known
from sweeps.space import Space


def sources_of(space: Space) -> list[str]:
    """Return the sources of all data of a space."""
    splits = (space.data.valid, space.data.test)
    paths = [str(split.path) for split in splits if split is not None and split.path]
    return [space.data.train, *paths, *(variant.train for variant in space.variants)]


def refuse_missing_secrets(space: Space) -> None:
    """Raise InputError if environment variables in `secrets` of the space file are not set."""
    if names := ", ".join(space.missing_secrets):
        text = f"needs these environment variables, which are not set: {names}"
        raise InputError(str(space.path), text)


def storage_secrets(space: Space, folder: Path) -> dict[str, str]:
    """Return environment variables for S3-compatible storage; {} if a sweep uses no such storage.

    Args:
        space: The search space.
        folder: The sweep's folder.
    """
    in_storage = store_of(folder) is not None or any(map(is_address, sources_of(space)))
    return needed_environment() if in_storage else {}


def secret_names(space: Space, secrets: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the secret environment variables of a session's processes.

    Args:
        space: The search space.
        secrets: See `storage_secrets`.
    """
    variables = {**space.runtime_env.env_vars, **secrets}
    hidden = (name for name, value in variables.items() if hide_known(value) != value)
    return (*space.secrets, *hidden)
