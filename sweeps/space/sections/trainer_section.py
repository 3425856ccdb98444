"""Parse the section `trainer`, which names a built-in trainer or a user's training loop."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError
from sweeps.core.installed_package import extras, install_command
from sweeps.core.plugins import references
from sweeps.core.plugins.library_code import is_library_file
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.parse.key_suggestions import suggest
from sweeps.space.parse.nodes import Node, Problems
from sweeps.space.parse.parameter_checks import mismatch
from sweeps.space.parse.section_checks import check, key_names, report_domains
from sweeps.space.schema.parameter_schema import (
    COMMAND_FORMAT,
    PACKAGE_FORMAT,
    REFERENCE_FORMAT,
    Fragment,
    allows,
)

from .built_in_trainers import PACKAGE, selecting_options, trainer_names
from .command_checks import command_hint
from .trainer_definition import (
    NAME,
    UNKNOWN,
    TrainerDefinition,
    definition_of,
    has_definition,
)
from .trainer_models import LoopKeys, TrainerKeys
from .trainer_spec import TrainerSpec

# Libraries whose classes are estimators with a method `fit`, not training loops. For scikit-learn,
# `trainer: "sklearn.svm:SVC"` is short for `trainer: {estimator: "sklearn.svm:SVC"}`.
ESTIMATORS = ("sklearn", "xgboost", "lightgbm", "catboost")


class TrainerSection:
    """Parser of the section `trainer`.

    Args:
        roots: Folders in which the user's modules are looked up.
        problems: Collects the problems.
        started: True for the file of a sweep that has already started. Packages may then be
            missing.
    """

    def __init__(self, roots: tuple[Path, ...], problems: Problems, started: bool):
        self.roots = roots
        self.problems = problems
        self.started = started

    def read(self, node: Node) -> TrainerSpec | None:
        """Parse a trainer, which is a name or a mapping. Return None after adding a problem."""
        if node.value is None:
            text = (
                f"is required; give {', '.join(trainer_names())} or your own loop: {{loop: "
                f"module:attr, backend: ...}}"
            )
            node.wrong_key(text)
        elif (
            isinstance(node.value, str)
            and node.value.startswith("sklearn.")
            and self._is_estimator(node.value)
        ):
            option = replace(node, path=f"{node.path}.estimator")
            return self._from_selecting_option(replace(node, value={"estimator": option}))
        elif isinstance(node.value, str):
            return self._from_keys(node, replace(node, value={}))
        elif not node.is_map:
            node.wrong(
                f"must be a name or a mapping with the key `loop` or `name`, got {node.show()}"
            )
        elif "loop" in node.value:
            return self._from_loop(node)
        elif "name" in node.value:
            return self._from_keys(replace(node.value["name"], path=node.path), node)
        else:
            return self._from_selecting_option(node)
        return None

    def _from_selecting_option(self, node: Node) -> TrainerSpec | None:
        """Return the built-in trainer that one of the options in a mapping selects."""
        trainers = selecting_options()
        selected = [option for option in trainers if option in node.value]
        if len(selected) > 1:
            node.wrong_key(
                f"has the keys {' and '.join(selected)}, but each selects another trainer; keep "
                "one of them"
            )
            return None
        if not selected:
            return self._from_loop(node)  # which adds the problem
        return self._from_keys(replace(node, value=trainers[selected[0]], mark=node.at), node)

    def _from_keys(self, name: Node, node: Node) -> TrainerSpec | None:
        """Return the trainer with a name. Return None after a problem.

        Args:
            name: Name of the trainer.
            node: The section as a mapping, with keys of `TrainerKeys` and the trainer's options.
        """
        names = key_names(TrainerKeys)
        key_nodes = {key: child for key, child in node.items() if key in names}
        keys = check(TrainerKeys, replace(node, value=key_nodes))
        if keys is None:
            return None
        trainer = self._from_name(name, str(name.value))
        if trainer is None:
            return None
        if keys.load and (fault := self._reference_problem(keys.load, "load")):
            node.value["load"].wrong(fault)
        self._check_backend(keys.backend, node)
        backend = keys.backend or trainer.backend
        if trainer.name is not None and ":" not in backend and backend != trainer.backend:
            node.value["backend"].wrong(
                f"`{name.value}` needs the backend `{trainer.backend}`, got `{backend}`; leave the "
                "key out"
            )
        option_nodes = {key: child for key, child in node.items() if key not in names}
        definition = trainer.definition
        options = self._options(replace(node, value=option_nodes), str(name.value), definition)
        return replace(
            trainer,
            backend=backend,
            load=keys.load or trainer.load,
            reuse=keys.reuse,
            options=options,
            references=_values_of_format(REFERENCE_FORMAT, options, definition),
            packages=_values_of_format(PACKAGE_FORMAT, options, definition),
            environment={
                variable: str(options[key])
                for variable, key in definition.environment.items()
                if options.get(key) is not None
            },
        )

    def _options(self, node: Node, trainer: str, definition: TrainerDefinition) -> dict[str, Any]:
        """Return the value of each option of the trainer.

        Add a problem for each option that is unknown, missing or invalid.

        Args:
            node: The options in the space file.
            trainer: The trainer's name, for messages.
            definition: The trainer's definition.
        """
        known = definition.options
        options = {
            key: fragment["default"] for key, fragment in known.items() if "default" in fragment
        }
        for key, child in node.items():
            if key not in known:
                valid = [*known, *key_names(TrainerKeys)]
                child.wrong_key(f"unknown key; {did_you_mean(key, valid)}")
            elif not report_domains(child):
                for text in self._option_problems(known[key], child):
                    child.wrong(text)
                if child.value is not None:
                    options[key] = child.plain()
        for key in known:
            if key not in options and key not in node.value:
                meaning = known[key].get("description", "a value")
                node.get(key).wrong(
                    f"is required by `{trainer}`; give "
                    f"{meaning[0].lower()}{meaning[1:].rstrip('.')}"
                )
        return options

    def _option_problems(self, fragment: Fragment, node: Node) -> Iterator[str]:
        """Yield a message for each rule that the value of an option breaks."""
        format_name = fragment.get("format")
        value = node.value
        if not allows(fragment, node.plain()):
            hint = command_hint(node) if format_name == COMMAND_FORMAT else ""
            yield mismatch(fragment, node, tunable=False) + hint
        elif value is None:
            return
        elif format_name == REFERENCE_FORMAT:
            if text := references.problem(value, self.roots):
                yield text
        elif (
            format_name == PACKAGE_FORMAT
            and not self.started
            and references.source_of(value) is None
        ):
            command = install_command(value) if value in extras() else f"pip install {value}"
            yield f"`{value}` is not installed; run `{command}`"

    def _from_loop(self, node: Node) -> TrainerSpec | None:
        """Return the trainer that a mapping with `loop` describes."""
        keys = check(LoopKeys, node)
        for key in ("loop", "load"):
            child = node.get(key)
            ref = child.value if isinstance(child.value, str) else ""
            if ref and (fault := self._reference_problem(ref, key)):
                child.wrong(fault)
        if keys is None:
            return None
        module = keys.loop.partition(":")[0]
        # The definition gives defaults for missing keys of the mapping.
        definition = self._define(module) or UNKNOWN
        load_module = (keys.load or "").partition(":")[0]
        if load_module not in ("", module):
            self._define(load_module)  # only to report the problems of its literal
        backend = keys.backend if "backend" in node.value else definition.backend
        self._check_backend(backend, node)
        load = keys.load or (f"{module}:{definition.load}" if definition.load else None)
        return TrainerSpec(
            None, keys.loop, backend, load, keys.reuse, path=node.path, definition=definition
        )

    def _from_name(self, node: Node, name: str) -> TrainerSpec | None:
        """Return the trainer with a name: a built-in one, or one in the user's module.

        Return None after a problem.
        """
        is_module_name = all(part.isidentifier() for part in name.split("."))
        if ":" in name:
            text = (
                f"`{name}` is a loop, not a trainer's name; write {{loop: {node.show()}}}, "
                "and add `backend: torch` if its ranks need torch's process group"
            )
            if self._is_estimator(name):
                text = self._reference_problem(name, "loop") or text
            node.wrong(text)
        elif is_module_name and name in trainer_names():
            return self._from_module(node, name, f"{PACKAGE}.{name}")
        elif is_module_name and self._is_own_module(name):
            return self._from_module(node, None, name)
        else:
            hint = suggest("trainer.name", name, trainer_names())
            text = (
                f"`{name}` is neither a built-in trainer nor a mapping {{loop: module:attr}}; "
                f"{hint}"
            )
            node.wrong(text)
        return None

    def _from_module(self, node: Node, name: str | None, module: str) -> TrainerSpec | None:
        """Return the trainer of a module that has a `TRAINER` literal."""
        if not has_definition(module, self.roots):
            text = (
                f"module `{module}` has no `{NAME}` literal; add this literal, or write {{loop: "
                f'"{module}:train_func"}}'
            )
            node.wrong(text)
            return None
        if (definition := self._define(module)) is None:
            return None
        missing = [
            package for package in definition.packages if references.source_of(package) is None
        ]
        if missing and not self.started:
            command = f"pip install {' '.join(missing)}"
            if definition.extra:
                command = install_command(definition.extra)
            node.wrong(
                f"`{name or module}` needs {', '.join(missing)}, which is not installed; run "
                f"`{command}`"
            )
        load = f"{module}:{definition.load}" if definition.load else None
        for ref in (f"{module}:{definition.loop}", load or "", definition.backend):
            # The backend may also be a name, such as `torch`.
            fault = references.problem(ref, self.roots) if ":" in ref else None
            if fault:
                node.wrong(fault)
                return None
        return TrainerSpec(
            name,
            f"{module}:{definition.loop}",
            definition.backend,
            load,
            path=node.path,
            definition=definition,
        )

    def _check_backend(self, backend: str | None, node: Node) -> None:
        """Add a problem if a backend is a reference to an object that does not exist.

        `node` is the section as a mapping.
        """
        if backend and ":" in backend and (fault := references.problem(backend, self.roots)):
            node.get("backend").wrong(fault)

    def _define(self, module: str) -> TrainerDefinition | None:
        """Read the definition of a trainer from its module, and add the problems of its literal."""
        try:
            return definition_of(module, self.roots)
        except InputError as e:
            self.problems.extend(e.problems)
            return None

    def _is_own_module(self, name: str) -> bool:
        """Return True if a module lies in one of the user's folders."""
        path = references.source_of(name, self.roots)
        return path is not None and any(
            path.absolute().is_relative_to(root.absolute()) for root in self.roots
        )

    def _reference_problem(self, ref: str, key: str) -> str | None:
        """Return what is wrong with the reference in `trainer.loop` or `trainer.load`.

        Return None if no problem was found.
        """
        if key == "loop" and self._is_estimator(ref):
            return (
                f"`{ref}` is an estimator, not a training loop; write trainer: {{estimator: "
                f'"{ref}"}}'
            )
        if (text := references.problem(ref, self.roots)) is not None:
            return text
        if key == "loop" and any(
            name.rpartition(".")[2] == "Trainable"
            for name in references.base_classes(ref, self.roots)
        ):
            return (
                f"`{ref}` is a subclass of ray.tune.Trainable, not a training loop; write "
                f'trainer: {{trainable: "{ref}"}}'
            )
        return None

    def _is_estimator(self, ref: str) -> bool:
        """Return True if a reference names something in an installed library of estimators.

        An example of such a library is scikit-learn.
        """
        if ":" not in ref:
            return False
        package = ref.partition(":")[0].split(".")[0]
        path = references.source_of(package, self.roots) if package in ESTIMATORS else None
        return path is not None and is_library_file(path)


def _values_of_format(
    format_name: str, options: dict[str, Any], definition: TrainerDefinition
) -> tuple[str, ...]:
    """Return the values of the options whose fragment has the format, without null values."""
    known = definition.options
    return tuple(
        value
        for key, value in options.items()
        if value is not None and known[key].get("format") == format_name
    )
