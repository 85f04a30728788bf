"""Problems that say 'cuda' literally, on a machine where the harness's device is the CPU.

What is asked of torch for a CUDA device is given on the CPU: factories and `.to('cuda')`, `.cuda()`, generators, and
the calls that only wait or tidy up on a device. `torch.cuda.is_available()` stays False, and what needs a device (a
stream, an event, a kernel) fails as it did. Triton interprets its kernels there instead of compiling them, and tunes
none. It is for trying problems and for tests: nothing is ranked there.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import re
import warnings
from collections.abc import Iterable
from typing import Any

# Waiting for a device and tidying it up: nothing to do for a CPU.
NOTHING = (
    "synchronize", "empty_cache", "manual_seed", "manual_seed_all", "init", "reset_peak_memory_stats", "set_device",
    "ipc_collect",
)  # fmt: skip
_installed: list[Any] = []


def wanted(gpu: str, texts: Iterable[str]) -> bool:
    """Whether this device is the CPU, and any of these texts uses torch."""
    return gpu.lower() == "cpu" and any(imports(text, "torch") for text in texts)


def interpreted(gpu: str, texts: Iterable[str]) -> bool:
    """Whether this device is the CPU, and any of these texts has kernels in Triton."""
    return gpu.lower() == "cpu" and any(imports(text, "triton") for text in texts)


def interpret() -> None:
    """From here on Triton interprets its kernels, and one that is to be tuned takes the first of its configurations:
    there is no device to time them on."""
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ.pop("TRITON_CACHE_AUTOTUNING", None)  # older ones look for a device to name what they keep by
    with contextlib.suppress(Exception, SystemExit):  # whoever imports it meets that again
        tuner: Any = importlib.import_module("triton.runtime.autotuner")
        tuner.Autotuner._bench = lambda *args, **kwargs: [1.0, 1.0, 1.0]


def imports(text: str, module: str) -> bool:
    """Whether this text imports the module or a part of it, anywhere; text that isn't Python imports nothing."""
    if module not in text:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.removeprefix("\ufeff"))  # a byte order mark is no part of it
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(module == name.partition(".")[0] for node in ast.walk(tree) for name in _imported(node))


def _imported(node: ast.AST) -> Iterable[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str() as name, level=0):
            return [name]
        case ast.Call(func=func, args=[ast.Constant(value=str() as name), *_]):
            called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            return [name] if called in {"import_module", "__import__"} else []
        case _:
            return []


def install(*, no_device: bool = False) -> bool:
    """From here on, in this thread: whether torch is there at all and has no CUDA device of its own. With `no_device`
    it is as if it had none."""
    if _installed:
        return True
    try:
        torch: Any = importlib.import_module("torch")
        overrides: Any = importlib.import_module("torch.overrides")
    except ImportError:
        return False
    if no_device:
        torch.cuda.is_available = lambda: False
        torch.cuda.device_count = lambda: 0
    if torch.cuda.is_available():
        return False

    class OnTheCpu(overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.cuda:
                return args[0]
            named = {k: _mapped(torch, v) if k == "device" else v for k, v in (kwargs or {}).items()}
            if function in (torch.Tensor.to, torch.Tensor.pin_memory, torch.Tensor.record_stream):
                if function is not torch.Tensor.to:
                    return args[0]
                args = (args[0], *(_mapped(torch, arg) for arg in args[1:]))
            if "pin_memory" in named:
                named["pin_memory"] = False
            return function(*args, **named)

    mode = OnTheCpu()
    mode.__enter__()
    _installed.append(mode)
    _patch(torch)
    return True


def _mapped(torch: Any, device: Any) -> Any:
    if isinstance(device, str) and re.fullmatch(r"cuda(:\d+)?", device):
        return "cpu"
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("cpu")
    return device


def _patch(torch: Any) -> None:
    for name in NOTHING:
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    torch.cuda.current_device = lambda: 0
    generator, chosen = torch.Generator, torch.set_default_device

    class Kind(type):
        def __instancecheck__(cls, found: Any) -> bool:
            return isinstance(found, generator)

    class Generator(metaclass=Kind):
        def __new__(cls, device: Any = "cpu") -> Any:
            return generator(device=_mapped(torch, device))

    torch.Generator = Generator
    torch.set_default_device = lambda device: chosen(_mapped(torch, device))
    linear = torch.nn.Module
    linear.cuda = lambda module, device=None: module
    to = linear.to
    linear.to = lambda module, *args, **kwargs: to(
        module,
        *(_mapped(torch, arg) for arg in args),
        **{k: _mapped(torch, v) if k == "device" else v for k, v in kwargs.items()},
    )
