"""Solutions of flashinfer-bench as submissions: which files they become, and what is refused in which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbslurm.domain.source import bundled, checked_source
from kbslurm.errors import Invalid, TooLarge

SPEC = {"language": "triton", "target_hardware": ["cuda"], "entry_point": "src/main.py::forward"}
SOURCES = [
    {"path": "src/main.py", "content": "from .near import forward\n"},
    {"path": "src/near.py", "content": "def forward(x):\n    return x\n"},
]


def text(**changes: Any) -> bytes:
    spec = {**SPEC, **changes.pop("spec", {})}
    told = {"name": "n", "definition": "d", "author": "a", "spec": spec, "sources": SOURCES}
    return json.dumps({**told, **changes}).encode()


def test_its_sources_become_a_package_beside_the_file_that_is_called() -> None:
    source = checked_source("mine.json", text())
    assert source.file_name == "solution.py"
    assert list(source.files) == ["solution.py", "solution_files/src/main.py", "solution_files/src/near.py"]
    assert source.files["solution.py"] == (
        "from solution_files.src.main import forward\n\nrun = forward\nDEFINITION = 'd'\nDESTINATION_PASSING = True\n"
    )
    returning = checked_source("mine.json", text(spec={"destination_passing_style": False}))
    assert "DESTINATION_PASSING = False" in returning.text
    assert checked_source(source.file_name, source.text.encode()) == source, "as it is kept"


@pytest.mark.parametrize(
    ("binding", "says"),
    [
        ("torch", "cpp_extension.load(_NAME, _paths(['b.cpp', 'k.cu']), extra_include_paths=[_HERE], with_cuda=True)"),
        (None, "cpp.load(_NAME, cpp_files=_paths(['b.cpp']), cuda_files=_paths(['k.cu']), extra_include_paths=[_HERE]"),
    ],
)
def test_one_in_cuda_is_compiled_when_it_is_imported(binding: str | None, says: str) -> None:
    sources = [{"path": name, "content": "// one"} for name in ("k.cu", "b.cpp", "k.cuh")]
    made = checked_source(
        "k.json", text(spec={"language": "cuda", "entry_point": "k.cu::go", "binding": binding}, sources=sources)
    )
    called = made.files["solution.py"]
    assert says in called
    assert "go = _built.go\nrun = go\n" in called
    compile(called, "solution.py", "exec")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "mine.json isn't JSON"),
        (b"[1]", "isn't a solution of flashinfer-bench"),
        (b"[" * 100_000, "isn't JSON"),
        (text(sources=[]), "don't contain src/main.py"),
        (text(sources=[{"path": "a.py"}]), "has no path and content"),
        (text(sources=[*SOURCES, SOURCES[0]]), "is there twice"),
        (text(sources=[*SOURCES, {"path": "../x.py", "content": "x"}]), "isn't a valid path"),
        (text(sources=[*SOURCES, {"path": "x.so", "content": "x"}]), "must end in one of"),
        (text(spec={"entry_point": "src/main.py"}), "It is FILE::FUNCTION"),
        (text(spec={"entry_point": "src/main.py::a b"}), "isn't valid"),
        (text(spec={"entry_point": "src/main.py::import"}), "isn't valid"),
        (text(spec={"entry_point": "src/gone.py::run"}), "don't contain src/gone.py"),
        (text(spec={"language": "mojo"}), "is in the language 'mojo'"),
        (text(spec={"language": "cuda"}), "isn't a file that is compiled"),
        (text(spec={"destination_passing_style": "yes"}), "neither true nor false"),
        (text(spec={"language": "cuda", "entry_point": "k.cu::go", "binding": "x"},
              sources=[{"path": "k.cu", "content": "x"}]), "binding 'x' isn't known"),
    ],
)  # fmt: skip
def test_what_cant_be_judged_is_told_in_a_sentence(data: bytes, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        checked_source("mine.json", data)
    assert says in f"{refused.value.message} {refused.value.hint}"


def test_one_that_is_too_large_is_refused() -> None:
    with pytest.raises(TooLarge):
        checked_source("mine.json", text(description="x" * 1_000_001))


def test_the_file_that_is_called_may_be_in_a_folder() -> None:
    files = {"mine/src/kernel.py": b"x = 1\n", "mine/src/near.py": b"y = 1\n", "mine/README.md": b"z\n"}
    source = bundled(files, "src/kernel.py")
    assert (source.file_name, next(iter(source.files))) == ("kernel.py", "src/kernel.py")
    assert checked_source(source.file_name, source.text.encode()) == source
    both = {name: data for name, data in files.items() if "src" in name}
    assert next(iter(bundled(both, "kernel.py").files)) == "kernel.py", "a folder that all are in is left out"
    assert next(iter(bundled(both, "mine/src/kernel.py").files)) == "mine/src/kernel.py", "unless it is named"
