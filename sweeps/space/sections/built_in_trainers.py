"""The built-in trainers: their names, files and definitions."""

from pathlib import Path

from sweeps.core.plugins import references

from .trainer_definition import TrainerDefinition, definition_of

PACKAGE = "sweeps.trainers"


def trainer_names() -> list[str]:
    """Return the names of the built-in trainers, which are the modules of `sweeps.trainers`."""
    return [file.stem for file in _files("*.py") if not file.stem.startswith("_")]


def trainer_definitions() -> dict[str, TrainerDefinition]:
    """Return the definition of each built-in trainer by its name."""
    return {name: definition_of(f"{PACKAGE}.{name}") for name in trainer_names()}


def portfolio_files() -> dict[str, Path]:
    """Return the file of each portfolio by its name. A portfolio has known good configurations."""
    return {file.stem: file for file in _files("portfolios/*.yaml")}


def trainer_modules() -> list[str]:
    """Return the dotted names of all modules of `sweeps.trainers`, shared ones included."""
    return [f"{PACKAGE}.{file.stem}" for file in _files("*.py") if file.stem != "__init__"]


def _files(pattern: str) -> list[Path]:
    """Return the files of `sweeps.trainers` that match a pattern, sorted by name."""
    package = references.source_of(PACKAGE)
    return sorted(package.parent.glob(pattern)) if package else []


def selecting_options() -> dict[str, str]:
    """Return the options that select a built-in trainer, and the trainer that each selects.

    Such an option selects the trainer in a section `trainer` without `name`.
    """
    return {
        definition.selected_by: name
        for name, definition in trainer_definitions().items()
        if definition.selected_by
    }
