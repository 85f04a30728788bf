"""A solution in flashinfer-bench's form, one JSON with all of its files, as the files of a submission.

Its sources become a package, beside a file that we write: it has the function of the entry point under the names that
are called, and says whether outputs are passed in. Sources that Python can't import are compiled when it is imported.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from kbslurm.errors import Invalid

SUFFIX = ".json"
PACKAGE = "solution_files"
ENTRY = "solution.py"
IN_PYTHON = ("python", "triton", "tilelang")
COMPILED = ("cpp", "cuda")
FORM = "A solution has name, definition, sources with path and content, and spec with language and entry_point."


def files_of(text: str, file_name: str) -> dict[str, str]:
    """The submission's files, first the one that is called; Invalid if it isn't a solution that can be judged."""
    told = _read(text, file_name)
    sources = _sources(told, file_name)
    spec = told["spec"]
    path, symbol = _entry_point(spec, sources, file_name)
    language = spec.get("language")
    if language in IN_PYTHON:
        loaded = _imported(path, symbol, file_name)
    elif language in COMPILED:
        loaded = _compiled(spec, path, symbol, sources, file_name)
    else:
        raise Invalid(
            f"{file_name} is in the language {str(language)[:40]!r}",
            hint=f"It can be {', '.join((*IN_PYTHON, *COMPILED))}.",
        )
    passing = spec.get("destination_passing_style", True)
    if not isinstance(passing, bool):
        raise Invalid(f"{file_name}: destination_passing_style is neither true nor false", hint=FORM)
    same = "" if symbol == "run" else f"run = {symbol}\n"
    head = f"DEFINITION = {told['definition']!r}\nDESTINATION_PASSING = {passing}\n"
    return {ENTRY: f"{loaded}{same}{head}", **{f"{PACKAGE}/{name}": content for name, content in sources.items()}}


def _read(text: str, file_name: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file_name} isn't JSON: {str(error)[:200]}", hint=FORM) from None
    match told:
        case {"definition": str(), "spec": dict(), "sources": list()}:
            return dict(told)
        case _:
            raise Invalid(f"{file_name} isn't a solution of flashinfer-bench", hint=FORM)


def _sources(told: Mapping[str, Any], file_name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in told["sources"]:
        match one:
            case {"path": str() as path, "content": str() as content} if path and path not in found:
                if any(part.startswith(".") for part in PurePosixPath(path).parts):
                    raise Invalid(f"{file_name}: {path[:80]!r} isn't a valid path")
                found[path] = content
            case _:
                raise Invalid(f"{file_name}: a source has no path and content, or its path is there twice", hint=FORM)
    return found


def _entry_point(spec: Mapping[str, Any], sources: Mapping[str, str], file_name: str) -> tuple[str, str]:
    told = spec.get("entry_point")
    path, colons, symbol = told.partition("::") if isinstance(told, str) else ("", "", "")
    if not colons or not symbol.isidentifier() or keyword.iskeyword(symbol):
        raise Invalid(
            f"{file_name}: the entry point {str(told)[:80]!r} isn't valid",
            hint="It is FILE::FUNCTION, like main.py::run.",
        )
    if path not in sources:
        raise Invalid(f"{file_name}: its sources don't contain {path[:80]}, the file of its entry point")
    return path, symbol


def _imported(path: str, symbol: str, file_name: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    if PurePosixPath(path).suffix != ".py" or not all(part.isidentifier() for part in parts):
        raise Invalid(
            f"{file_name}: Python can't import {path[:80]}", hint="Give the file a name like kernels/main.py."
        )
    return f"from {'.'.join((PACKAGE, *parts))} import {symbol}\n\n"


def _compiled(spec: Mapping[str, Any], path: str, symbol: str, sources: Mapping[str, str], file_name: str) -> str:
    """Compiled by torch or by tvm-ffi, as flashinfer-bench does."""
    units = sorted(name for name in sources if PurePosixPath(name).suffix in (".cpp", ".cc", ".cu"))
    if path not in units:
        raise Invalid(f"{file_name}: {path[:80]} isn't a file that is compiled", hint="C++ ends in .cpp, CUDA in .cu.")
    device = [name for name in units if name.endswith(".cu")]
    match spec.get("binding") or "tvm-ffi":
        case "torch":
            module = "from torch.utils import cpp_extension"
            load = (
                f"cpp_extension.load(_NAME, _paths({units!r}), extra_include_paths=[_HERE], with_cuda={bool(device)})"
            )
        case "tvm-ffi":
            host = [name for name in units if name not in device]
            module = "from tvm_ffi import cpp"
            load = (
                f"cpp.load(_NAME, cpp_files=_paths({host!r}), cuda_files=_paths({device!r}), "
                'extra_include_paths=[_HERE], build_directory=os.environ.get("KBSLURM_CACHE"))'
            )
        case other:
            raise Invalid(
                f"{file_name}: the binding {str(other)[:40]!r} isn't known", hint="It can be torch or tvm-ffi."
            )
    return f"{_COMPILED.format(module=module, package=PACKAGE, load=load)}{symbol} = _built.{symbol}\n"


_COMPILED = """import os

{module}

_NAME = "solution_built"
_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{package}")


def _paths(names):
    return [os.path.join(_HERE, name) for name in names]


_built = {load}
"""
