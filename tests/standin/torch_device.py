"""A CUDA device for a torch that has none: tensors of the processor's that say that they are on `cuda`.

It goes with the stand-in for a driver, whose memory is the host's: the address of such a tensor is good in both, and a
tensor may be made over memory that the driver gave. What is in `eval/` runs on it unchanged; what a device would do in
its own time is done at once. `play` is called before anybody imports torch.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import math
import sys
from typing import Any

DTYPES = {"|u1": "uint8", "<i2": "int16", "<i4": "int32", "<i8": "int64", "<c16": "complex128", "<f8": "float64"}


class _OnImport(importlib.abc.MetaPathFinder):
    """Adds the device when torch is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Torch's own, which is given a device when it has been loaded."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec("torch")
        load = spec.loader.exec_module

        def loaded(module: Any) -> None:
            load(module)
            _add(module)

        spec.loader.exec_module = loaded
        return spec


def play() -> None:
    """From here on a torch that is imported has a device."""
    sys.meta_path.insert(0, _OnImport())


def _is_there(device: Any) -> bool:
    return str(device).startswith("cuda")


def _add(torch: Any) -> None:
    overrides: Any = importlib.import_module("torch.overrides")

    class There(torch.Tensor):  # type: ignore[misc]
        __module__ = "torch"

        @property
        def device(self) -> Any:
            return torch.device("cuda", 0)

    class Device(overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told = dict(kwargs or {})
            if function is torch.Tensor.cpu:
                return args[0].clone().as_subclass(torch.Tensor)
            if function is torch.Tensor.to and isinstance(args[1], str | torch.device):
                return args[0].clone().as_subclass(There if _is_there(args[1]) else torch.Tensor)
            if function is torch.as_tensor and hasattr(args[0], "__cuda_array_interface__"):
                return _over(args[0]).as_subclass(There)
            if not _is_there(told.get("device")):
                return function(*args, **told)
            return function(*args, **{**told, "device": "cpu"}).as_subclass(There)

    def _over(array: Any) -> Any:
        form = array.__cuda_array_interface__
        size = math.prod(form["shape"]) * int(form["typestr"][2:])
        memory = (ctypes.c_ubyte * size).from_address(form["data"][0])
        memory.owner = array
        return torch.frombuffer(memory, dtype=getattr(torch, DTYPES[form["typestr"]])).reshape(form["shape"])

    torch.kept_device = Device()
    torch.kept_device.__enter__()
    torch.cuda.is_available = lambda: True
    torch.cuda.empty_cache = lambda: None
    generator = torch.Generator
    torch.Generator = lambda device="cpu": generator()
