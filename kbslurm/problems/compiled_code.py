"""Reads a problem's C++ or CUDA without compiling it: its three functions, their parameters, where its types are.

`reference_code.py` does the same for Python. Only function heads are read; templates, macros that define functions and
the like aren't recognised, and a reference that uses them is reported as lacking a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm.errors import Invalid
from kbslurm.problems.python_code import BYTE_ORDER_MARK, Function
from kbslurm_eval.build.cpp_signatures import function_parameters

SUBMISSION_SUFFIXES = (".cu", ".cuh", ".cpp", ".hip")
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".cuh")
REFERENCES = ("reference.py", "reference.cuh", "reference.cu", "reference.hpp", "reference.h", "reference.cpp")
ANSWERS = ("ref_kernel", "reference")
_TYPES = re.compile(r"\busing\s+input_t\b|\btypedef\b[^;]*\binput_t\s*;|\b(?:struct|class)\s+input_t\b")
_REPORTER = re.compile(r"\b(?:class|struct)\s+TestReporter\b")
_MAIN = re.compile(r"^[ \t]*(?:int|auto)\s+main\s*\(", re.MULTILINE)
_CASES = re.compile(r"^\ufeff?[ \t]*//\s*(TESTS|BENCHMARKS|HIDDEN)\s*=\s*(\[.*\])\s*$", re.MULTILINE)
_BASELINE = re.compile(r'^\ufeff?[ \t]*//\s*BASELINE\s*=\s*"?([^"\n]*?)"?\s*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#\s*pragma\s+once\b", re.MULTILINE)
_INCLUDE = re.compile(
    r'^\ufeff?[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import)[ \t]*["<]([^">\n]+)[">]', re.MULTILINE
)
_QUOTED = re.compile(r'["<]([^"<>\\\n]+)(?=\\?[">])')  # in a text for an assembler with a backslash before the mark


@dataclass(frozen=True, kw_only=True)
class CompiledReference:
    """A C++ reference: how it is called, and which of its files the submission shares."""

    adapter: Mapping[str, Any]
    generate: Function
    style: str
    shared: tuple[str, ...]


def read_reference(name: str, files: Mapping[str, str], file: Path) -> CompiledReference:
    """How to call this reference's functions, or Invalid naming what is missing."""
    text = files[name]
    headers = [n for n in files if n.endswith(HEADER_SUFFIXES) and n != name]
    given = function_parameters(text, ("generate_input",))
    if given is None:
        raise _lacks("generate_input", file)
    if nameless := [kind for kind, called in given if not called]:
        raise Invalid(f"a parameter of generate_input has no name ({nameless[0]})", file=file)
    answer = next((a for a in ANSWERS if function_parameters(text, (a,)) is not None), None)
    if answer is None:
        raise _lacks("ref_kernel", file)
    check = function_parameters(text, ("check_implementation",))
    if check is None:
        raise _lacks("check_implementation", file)
    holder = next((n for n in [*headers, name] if _TYPES.search(files[n])), None)
    if holder is None:
        raise Invalid("no file defines input_t, the type of the data", file=file, hint="using input_t = …;")
    kind = _check_kind(check, file)
    shared = (name,) if holder == name else (holder,)
    adapter = {
        "file": name,
        "headers": headers,
        "shared": list(shared),
        "generate": given,
        "answer": answer,
        "check": kind,
        "own_reporter": any(_REPORTER.search(t) for t in files.values()),
    }
    return CompiledReference(
        adapter=adapter,
        generate=Function(name="generate_input", line=_line(text, "generate_input"), known=True,
                          required=tuple(called for _, called in given)),
        style="one-file" if kind == "output_reference" else "modern",
        shared=shared,
    )  # fmt: skip


def has_main(text: str) -> bool:
    """Whether it is a program, that is a bundled eval, which is never compiled in."""
    return _MAIN.search(text) is not None


def includes(text: str) -> set[str]:
    """The names, without folders, of what this text includes by a name that stands there."""
    return {path.rpartition("/")[2].strip() for path in _INCLUDE.findall(_joined(text))}


def names_files(text: str) -> set[str]:
    """The names, without folders, of whatever this text may include or read: by a macro, or by an assembler, too."""
    return {path.rpartition("/")[2].strip() for path in _QUOTED.findall(_joined(text))}


def _joined(text: str) -> str:
    """With each line that goes on in the next as one."""
    return text.replace("\r\n", "\n").replace("\\\n", "")


def reached(starts: Iterable[str], files: Mapping[str, str], found_in: Callable[[str], Collection[str]]) -> set[str]:
    """These files, and the others that they lead to."""
    seen: set[str] = set()
    left = [name for name in starts if name in files]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += [inner for inner in found_in(files[name]) if inner in files]
    return seen


def included_once(text: str) -> str:
    """The text, made safe to include twice: by a submission and by the code around it."""
    bare = text.removeprefix(BYTE_ORDER_MARK)  # compilers skip a byte order mark at the start only
    return text if _ONCE.search(bare) else f"#pragma once\n#line 1\n{bare}"


def literal_cases(text: str, key: str) -> tuple[str, int] | None:
    """The literal behind `// KEY = [...]` and its line, or None."""
    for found in _CASES.finditer(text):
        if found.group(1) == key:
            return found.group(2), text.count("\n", 0, found.start()) + 1
    return None


def baseline_of(text: str) -> tuple[str, int] | None:
    """What follows `// BASELINE = ` and its line, or None."""
    found = _BASELINE.search(text)
    return None if found is None else (found.group(1), text.count("\n", 0, found.start()) + 1)


def takes_data(text: str, name: str) -> bool:
    """Whether this file defines such a function with one parameter."""
    return name.isidentifier() and len(function_parameters(text, (name,)) or ()) == 1


def called_as_submission(name: str, reference: str) -> str:
    """A submission that calls this function of the reference."""
    return f'#include "{reference}"\n\noutput_t custom_kernel(input_t data) {{ return {name}(data); }}\n'


def _check_kind(check: Sequence[Sequence[str]], file: Path) -> str:
    kinds = [kind.replace(" ", "") for kind, _ in check]
    names = [name.lower() for _, name in check]
    if kinds and "TestReporter" in kinds[0]:
        return "reporter"
    if len(kinds) >= 2 and kinds[0] == "input_t":
        return "data_output"
    if len(kinds) >= 2 and kinds[0] == kinds[1] == "output_t" and "data" not in names[0]:
        return "output_reference"
    raise Invalid(
        "it isn't clear what check_implementation compares",
        file=file,
        hint="Write (input_t data, output_t output), (output_t output, output_t reference) or (TestReporter &, …).",
    )


def _lacks(name: str, file: Path) -> Invalid:
    return Invalid(
        f"the function {name} is missing",
        file=file,
        hint="The problem author's guide says what a reference must define.",
    )


def _line(text: str, name: str) -> int:
    at = text.find(name)
    return text.count("\n", 0, at) + 1 if at >= 0 else 1
