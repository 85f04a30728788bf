"""Arrays on a device by their address, as judge and runner make them over memory that the driver gave."""

from __future__ import annotations

import importlib
from typing import Any

_BY_WIDTH = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<c16"}


class DeviceArray:
    """An array on the device, by its address: what cupy, numba and torch take as `__cuda_array_interface__`.

    `owner`: what the memory belongs to, kept as long as the array is."""

    __slots__ = ("__cuda_array_interface__", "dtype", "nbytes", "owner", "ptr", "shape")

    def __init__(
        self, ptr: int, typestr: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, owner: Any = None
    ) -> None:
        self.ptr, self.dtype, self.shape, self.owner = ptr, typestr, shape, owner
        self.nbytes = count(shape) * int(typestr[2:])
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (ptr, False), "strides": strides, "version": 3,
        }  # fmt: skip

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, {self.shape}, at {self.ptr:#x})"


def tensor_over(at: int, name: str, shape: list[int], index: int, owner: Any = None) -> Any:
    """A tensor over the memory that begins at this address on this device."""
    torch = importlib.import_module("torch")
    where, dtype = f"cuda:{index}", getattr(torch, name)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=where)
    width = torch.empty((), dtype=dtype).element_size()
    flat = DeviceArray(at, _BY_WIDTH[width], (count(tuple(shape)),), owner=owner)
    return torch.as_tensor(flat, device=where).view(dtype).reshape(shape)


def count(shape: tuple[int, ...]) -> int:
    """How many elements an array of this shape has."""
    found = 1
    for size in shape:
        found *= size
    return found


def permuted(shape: list[int], order: list[int], width: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shape and strides of an array whose bytes stand in another order of its dimensions."""
    if order == sorted(order):
        return tuple(shape), None
    steps = c_strides(tuple(shape), width)
    back = sorted(range(len(order)), key=order.__getitem__)
    return tuple(shape[n] for n in back), tuple(steps[n] for n in back)


def c_strides(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """The strides of a dense array in C order."""
    found, step = [0] * len(shape), width
    for n in range(len(shape) - 1, -1, -1):
        found[n] = step
        step *= shape[n]
    return tuple(found)
