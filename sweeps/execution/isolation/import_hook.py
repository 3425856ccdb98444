"""Change a module when it is imported for the first time."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any


class ImportHook(MetaPathFinder):
    """Import hook for `sys.meta_path` that calls a function after the first import of a module.

    The hook then removes itself.

    Args:
        module: Name of the module.
        function: Function that is called with the module.
    """

    def __init__(self, module: str, function: Callable[[ModuleType], None]):
        self.module = module
        self.function = function

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the other finders find for the module; None for other modules."""
        if name != self.module:
            return None
        sys.meta_path.remove(self)  # so that the next line asks only the other finders
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            original = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                original(module)
                self.function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
