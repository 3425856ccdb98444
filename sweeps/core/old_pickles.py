"""Load pickles that earlier versions of sweeps wrote. Some classes had other names then, or were in other modules."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

# Module in the pickle -> module today. A class that also has a new name needs a row in RENAMED_CLASSES.
MOVED_MODULES = {
    "sweeps.data.fitted": "sweeps.data.preprocessing.fitted_chain",
    "sweeps.data.preprocess": "sweeps.data.preprocessing.fit",
    "sweeps.data.plain": "sweeps.data.preprocessing.portable_steps",
    "sweeps.data.prepared": "sweeps.data.prepared_store",
    "sweeps.data.ray_stages": "sweeps.data.preprocessing.ray_steps",
    "sweeps.data.shelf": "sweeps.data.prepared_store",
    "sweeps.data.stages": "sweeps.data.preprocessing.fitted_steps",
}
# (module today, class name in the pickle) -> class name today.
RENAMED_CLASSES: dict[tuple[str, str], str] = {
    ("sweeps.data.columns", "Column"): "InputColumn",
    ("sweeps.data.prepared_store", "Facts"): "DatasetInfo",
    ("sweeps.data.preprocessing.fit", "Applied"): "StepConfig",
    ("sweeps.data.preprocessing.fit", "Fitted"): "FittedChain",
    ("sweeps.data.preprocessing.fitted_chain", "Applied"): "StepConfig",
    ("sweeps.data.preprocessing.fitted_chain", "Fitted"): "FittedChain",
    ("sweeps.data.preprocessing.fitted_steps", "EstimatorStage"): "FittedEstimator",
    ("sweeps.data.preprocessing.fitted_steps", "FunctionStage"): "FunctionStep",
    ("sweeps.data.preprocessing.ray_steps", "RayStage"): "FittedRayPreprocessor",
}


class RenamedFields:
    """Base class of pickled classes whose fields had other names in earlier versions of sweeps.

    Attributes:
        OLD_FIELDS: The current name of each renamed field, by the name in old pickles.
    """

    OLD_FIELDS: ClassVar[Mapping[str, str]] = {}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(
            {self.OLD_FIELDS.get(name, name): value for name, value in state.items()}
        )


class _Unpickler(pickle.Unpickler):
    """Unpickler that replaces old names of modules and classes by their current names."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        module = MOVED_MODULES.get(module_name, module_name)
        return super().find_class(module, RENAMED_CLASSES.get((module, global_name), global_name))


def loads(data: bytes) -> Any:
    """Load a pickle, and return the object. Like `pickle.loads`, this function runs any code that the pickle names.

    Args:
        data: The pickle. This version of sweeps or an earlier version wrote it.

    Raises:
        Exception: Any error that `pickle.loads` or the code of the pickle raises.
    """
    return _Unpickler(io.BytesIO(data)).load()
