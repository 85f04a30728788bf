"""The typed HTTP client of kbslurm's API, for the command line, the bot and other programs.

from kbslurm.client import Client

with Client("https://kernels.example.edu", token=TOKEN) as client:
    for found in client.evaluate("matmul", sources, key="run-7"):
        print(found.name, found.passed, found.score_s)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbslurm.client.evaluating import Evaluation, GpuVerdict, Progress
    from kbslurm.client.http import Client

__all__ = ["Client", "Evaluation", "GpuVerdict", "Progress"]


def __getattr__(name: str) -> Any:
    """Imported when it is used: whoever needs another module of this package doesn't pay for the HTTP library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    place = "http" if name == "Client" else "evaluating"
    return getattr(importlib.import_module(f"{__name__}.{place}"), name)
