"""Load pickles that earlier versions of sweeps wrote, whose classes now live in other modules."""

from __future__ import annotations

import io
import pickle
from typing import Any

# Module in the pickle -> module today. A class that is renamed as well needs a row in RENAMED_CLASSES.
MOVED_MODULES = {
    "sweeps.data.fitted": "sweeps.data.preprocessing.fitted_chain",
    "sweeps.data.preprocess": "sweeps.data.preprocessing.fit",
    "sweeps.data.plain": "sweeps.data.preprocessing.portable_steps",
    "sweeps.data.ray_stages": "sweeps.data.preprocessing.ray_steps",
    "sweeps.data.shelf": "sweeps.data.prepared_store",
    "sweeps.data.stages": "sweeps.data.preprocessing.fitted_steps",
}
# (module today, class name in the pickle) -> class name today.
RENAMED_CLASSES: dict[tuple[str, str], str] = {}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        module = MOVED_MODULES.get(module_name, module_name)
        return super().find_class(module, RENAMED_CLASSES.get((module, global_name), global_name))


def loads(data: bytes) -> Any:
    """Return the object that a pickle holds. Like `pickle.loads`, this runs code that the pickle names.

    Args:
        data: the pickle, written by this version of sweeps or an earlier one.

    Raises:
        Exception: as `pickle.loads`, whatever the pickle's code raises.
    """
    return _Unpickler(io.BytesIO(data)).load()
