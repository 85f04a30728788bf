"""Build results: placed where a submission's tools look for them, and collected into one archive."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

from kbslurm_eval.build import archive
from kbslurm_eval.shared.runner_link import BUILT_SUFFIX, Status

CACHES = {
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUDA_CACHE_PATH": "cuda",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
    "XDG_CACHE_HOME": "xdg",
    "KBSLURM_CACHE": "own",
}
SHOWN = "/built"  # where a cage mounts build results


def furnish(told: dict[str, Any], folder: str) -> str | None:
    """Place build results where a submission's tools look for them. Returns their folder, or None without any."""
    place = told.get("place")
    if not place:
        return None
    cache = told.get("cache") or os.path.join(os.environ.get("TMPDIR", "/tmp"), str(place))
    if not told.get("native"):
        with contextlib.suppress(OSError):
            shutil.copytree(shown(folder), cache, dirs_exist_ok=True)  # copy2: times are kept
        os.makedirs(cache, exist_ok=True)
        for name, below in CACHES.items():
            os.environ[name] = os.path.join(cache, below)
            os.makedirs(os.environ[name], exist_ok=True)
        os.environ["TRITON_CACHE_AUTOTUNING"] = "1"  # which configuration was the fastest is kept with the kernels
    return str(cache)


def shown(folder: str) -> str:
    """The read-only copy of the build results."""
    return SHOWN if os.path.isdir(SHOWN) else folder.rstrip("/") + BUILT_SUFFIX


def library(folder: str, name: str) -> str:
    """The library's path, on a file system that allows loading it."""
    path = os.path.join(shown(folder), name)
    try:
        import ctypes

        ctypes.CDLL(path)
    except OSError as error:
        if "failed to map segment" not in str(error):
            return path
        copy = os.path.join(os.environ.get("TMPDIR", "/tmp"), name)
        shutil.copyfile(path, copy)
        return copy
    return path


def collected(cache: str, cap: int) -> tuple[int, str, bytes]:
    """The archive of this folder's files."""
    try:
        blob = archive.written(cache, cap)
    except archive.TooLarge:
        return Status.TOO_LARGE, "", b""
    except OSError as error:
        return Status.NOT_BUILT, f"what was built can't be read: {error.strerror}", b""
    return Status.OK, str(len(blob)), blob
