"""Which files of a problem with a reference in C++ submissions see, and what its task.yml can't ask for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid
from kbslurm.problems.handout import handout
from kbslurm.problems.loading import load

SHAPES = Path(__file__).resolve().parents[1] / "problems"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(SHAPES / "cu_header", tmp_path / "problem")


def with_files(folder: Path, **texts: str) -> None:
    """More files, `secret_h` being secret.h."""
    task = folder / "task.yml"
    for key, text in texts.items():
        name = ".".join(key.rsplit("_", 1))
        (folder / name).write_text(text)
        task.write_text(task.read_text().replace("files:\n", f"files:\n  - {{name: {name}, source: {name}}}\n"))


def own(folder: Path, *lines: str) -> Problem:
    """The problem with these lines under `kbslurm`."""
    task = folder / "task.yml"
    text = task.read_text().replace("kbslurm: {launches: 2, calls: 5}\n", "kbslurm:\n")
    task.write_text(text + "".join(f"  {line}\n" for line in lines))
    return load(folder)


def includes(folder: Path, file: str, name: str) -> None:
    text = (folder / file).read_text() if (folder / file).exists() else ""
    (folder / file).write_text(f'#include "{name}"\n{text}')


def test_what_only_the_reference_includes_stays_with_the_judge(folder: Path) -> None:
    before = load(folder)
    with_files(
        folder, secret_h='#include "table.inc"\n', table_inc="1, 2\n", extra_h="", fast_py="", data_safetensors=""
    )
    (folder / "data.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    includes(folder, "reference.cuh", "secret.h")
    problem = load(folder)
    assert before.runner_files == ("task.h",)
    assert set(problem.runner_files) == {"task.h", "extra.h"}
    assert set(problem.files) >= {"secret.h", "table.inc", "reference.cuh", "fast.py", "data.safetensors"}
    assert set(handout(problem, reference=False).files) == {"task.h", "extra.h"}


@pytest.mark.parametrize("how", ["macro", "assembler", "continued"])
def test_what_the_reference_names_otherwise_stays_with_the_judge(folder: Path, how: str) -> None:
    line = {
        "macro": '#define TABLE "secret.inc"\n#include TABLE\n',
        "assembler": 'asm(".incbin \\"secret.inc\\"");\n',
        "continued": '#include \\\n  "./secret.inc"\n',
    }[how]
    with_files(folder, secret_inc="\n")
    file = folder / "reference.cuh"
    file.write_text(line + file.read_text())
    assert load(folder).runner_files == ("task.h",)


@pytest.mark.parametrize(
    "where",
    ["task.h", "template.cu", "submissions/accepted/host.cpp", "extra.h", "fast.cu", "submissions/accepted/new.cu"],
)
def test_what_submissions_include_reaches_them(folder: Path, where: str) -> None:
    with_files(folder, shared_h="  #  include <inner.h>\n", inner_h="", extra_h="", fast_cu="")
    includes(folder, "reference.cuh", "shared.h")
    includes(folder, "reference.cuh", "inner.h")
    assert not {"shared.h", "inner.h"} & set(load(folder).runner_files)
    includes(folder, where, "shared.h")
    assert {"shared.h", "inner.h"} <= set(load(folder).runner_files)


def test_what_the_baseline_includes_reaches_it(folder: Path) -> None:
    with_files(folder, shared_h="")
    includes(folder, "reference.cuh", "shared.h")
    includes(folder, "plain.cu", "shared.h")
    assert "shared.h" in own(folder, "baseline: plain.cu").runner_files


def test_a_reference_with_the_types_is_shared_with_what_it_includes(folder: Path) -> None:
    with_files(folder, inner_h="")
    includes(folder, "task.h", "inner.h")
    text = (folder / "reference.cuh").read_text().replace('#include "task.h"', (folder / "task.h").read_text())
    (folder / "reference.cuh").write_text(text)
    (folder / "task.h").write_text("")
    assert set(load(folder).runner_files) == {"task.h", "inner.h", "reference.cuh"}


def test_the_author_decides_who_sees_a_file(folder: Path) -> None:
    with_files(folder, secret_h="", table_h="")
    includes(folder, "reference.cuh", "secret.h")
    problem = own(folder, "judge_files: [table.h]", "runner_files: [secret.h]")
    assert set(problem.runner_files) == {"task.h", "secret.h"}
    assert "table.h" in problem.files


def test_files_that_see_what_stays_are_told(folder: Path) -> None:
    with_files(folder, helper_h='#include "secret.h"\n#include "reference.cuh"\n', secret_h="")
    warned = [warning for warning in own(folder, "judge_files: [secret.h]").warnings if "isn't available" in warning]
    assert [warning.partition("source: ")[2] for warning in warned] == [
        "helper.h includes reference.cuh, which isn't available to the submission",
        "helper.h includes secret.h, which isn't available to the submission",
    ]


def test_sizes_for_a_gpu_type_count(folder: Path) -> None:
    problem = own(folder, "sizes: {cpu: {benchmarks: [{seed: 3, rows: 2, cols: 10}]}}")
    assert [case["cols"] for case in problem.for_gpu("cpu").benchmarks] == [10]
    assert [case["cols"] for case in problem.for_gpu("H100").benchmarks] == [1000]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("judge_files: [nowhere.h]", r"judge_files\[0\]: nowhere.h isn't among the files"),
        ("judge_files: [task.h]", r"judge_files\[0\]: task.h can't stay with the judge: it defines input_t"),
        ("judge_files: [inner.h]", r"inner.h can't stay with the judge: every submission is compiled with task.h"),
        ("judge_files: [fast.cu]", r"fast.cu can't stay with the judge: it is among config.sources"),
        ("runner_files: [reference.cuh]", r"runner_files\[0\]: reference.cuh belongs to the judge"),
        ("runner_files: [eval.cu]", r"runner_files\[0\]: eval.cu never reaches a submission"),
        ("judge_files: [extra.h], runner_files: [extra.h]", r"judge_files\[0\]: extra.h is among the runner_files"),
        ("sizes: {L4: {tests: [{depth: 1}]}}", r"generate_input has no parameter depth"),
        ("outputs: check", r"kbslurm\.outputs: with `lang: cu` an answer has the type and shape of ref_kernel's"),
        ("outputs: both", r"kbslurm\.outputs: both isn't one of reference, check"),
        ("wrapper: task.h", r"kbslurm\.wrapper: submissions in C\+\+ have no wrapper"),
        ("build: never", r"kbslurm\.build: submissions in C\+\+ are always built"),
    ],
)  # fmt: skip
def test_what_cant_be_had_is_refused_with_its_line(folder: Path, line: str, said: str) -> None:
    with_files(folder, inner_h="", extra_h="", fast_cu="")
    includes(folder, "task.h", "inner.h")
    task = folder / "task.yml"
    task.write_text(task.read_text().replace("sources: [eval.cu,", "sources: [eval.cu, fast.cu,"))
    with pytest.raises(Invalid, match=said) as told:
        own(folder, *line.split(", "))
    assert told.value.line == task.read_text().count("\n", 0, task.read_text().index("\nkbslurm:\n") + 1) + 2


@pytest.mark.parametrize("answer", [True, False])
def test_a_check_alone_decides_nothing_where_submissions_are_in_cpp(tmp_path: Path, answer: bool) -> None:
    folder = shutil.copytree(SHAPES / "cu_python", tmp_path / "problem")
    task, reference = folder / "task.yml", folder / "reference.py"
    if not answer:
        reference.write_text(reference.read_text().replace("def ref_kernel(", "def _want("))
    task.write_text(task.read_text().replace("kbslurm: {", "kbslurm: {outputs: check, "))
    with pytest.raises(Invalid, match=r"kbslurm\.outputs: with `lang: cu`") as told:
        load(folder)
    assert told.value.line == next(n for n, one in enumerate(task.read_text().splitlines(), 1) if "outputs" in one)
