"""What a builder compiles: a submission in C++ or CUDA, or a problem's own reference."""

from __future__ import annotations

from typing import Any

from kbslurm_eval.build import cpp_sources
from kbslurm_eval.shared import bundle
from kbslurm_eval.shared.wire import Manifest

LIBRARY = "kernel.so"


def recipe(manifest: Manifest) -> dict[str, Any]:
    """What a builder needs to compile the submission's library. It contains no case, seed or reference."""
    build = manifest.build
    files = {name: manifest.files[name] for name in manifest.runner_files if name in manifest.files}
    source, own = bundle.parts(manifest.source)
    call = str(manifest.config.get("call", "custom_kernel"))
    place = bundle.place_of(manifest.entry, own)
    unit = cpp_sources.call_unit(place, build.adapter, call)
    return {
        **_common(manifest),
        "files": {**own, **files, place: source},
        "unit": unit,
        "entry": place,
        "expected": cpp_sources.expected_of(build.adapter, call),
        "sources": [name for name in build.sources if name in files],
        "keep_sources": manifest.mode == "profile",  # for the source view
    }


def reference_recipe(manifest: Manifest) -> dict[str, Any]:
    """The same for the problem's own C++."""
    files = {name: text for name, text in manifest.files.items() if not name.endswith(".py")}
    unit = cpp_sources.reference_unit(manifest.build.adapter)
    return {**_common(manifest), "files": files, "unit": unit, "entry": manifest.reference, "sources": []}


def _common(manifest: Manifest) -> dict[str, Any]:
    build = manifest.build
    return {
        "gpu": manifest.gpu,
        "include_dirs": list(build.include_dirs),
        "defines": list(build.defines),
        "flags": list(build.flags),
        "library": LIBRARY,
        "header": cpp_sources.HEADER,
        "host_cuda": cpp_sources.HOST_CUDA,
    }
