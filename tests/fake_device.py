"""A fake GPU for torch: tensors are marked instead of moved, and an operation on mixed tensors
fails as on a real GPU.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

DEVICE = torch.device("cuda", 0)
CPU = torch.device("cpu")
# Functions that compute nothing.
PASSED = ("device", "_parse_to", "_has_compatible_shallow_copy_type")
# A tensor on the GPU takes indices and new values from the CPU.
MIXED = (torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.Tensor.copy_)
GET_DEVICE = torch.Tensor.device.__get__
SET_DATA = vars(torch._C.TensorBase)["data"].__set__  # This is how `Module.to` moves a parameter.


class FakeGpu(TorchFunctionMode):
    """Context in which `DEVICE` exists.

    Tensors stay in main memory, and those on `DEVICE` are marked.
    """

    def __init__(self) -> None:
        super().__init__()
        self._marked: MutableMapping[torch.Tensor, bool] = WeakIdKeyDictionary()

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on `DEVICE`."""
        return tensor in self._marked

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.__name__ in PASSED:
            return function(*args, **kwargs or {})
        leaves = tree_leaves((args, kwargs or {}))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        devices = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
        on_device = any(self.has(tensor) for tensor in tensors)
        if on_device and function is torch.Tensor.numpy:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if function == GET_DEVICE:
            return DEVICE if on_device else CPU
        others = [tensor for tensor in tensors if tensor.dim() and not self.has(tensor)]
        if on_device and others and function not in (*MIXED, SET_DATA):
            raise RuntimeError("Expected all tensors to be on the same device, cuda:0 and cpu")
        args, kwargs = tree_map_only(torch.device, lambda device: CPU, (args, kwargs or {}))
        result = function(*args, **kwargs)
        if function is torch.Tensor.cpu or devices:
            on_device = devices == [DEVICE]
            if any(result is tensor for tensor in tensors):
                result = result.view_as(result)  # A move returns another tensor.
                self._marked.pop(result, None)
        for leaf in tree_leaves(args[0] if function == SET_DATA else result):
            if on_device and isinstance(leaf, torch.Tensor):
                self._marked[leaf] = True
        return result
