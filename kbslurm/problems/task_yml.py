"""A folder with task.yml, in KernelBot's format → a Problem."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from kbslurm.domain.physics import FORMULAS, SHAPES, amount
from kbslurm.domain.problem import Problem
from kbslurm.domain.source import checked_source
from kbslurm.errors import Invalid
from kbslurm.problems.cases import PARAMETER_NAME, CaseCheck, sizes_of
from kbslurm.problems.compiled_code import (
    REFERENCES,
    SUBMISSION_SUFFIXES,
    has_main,
    included_once,
    read_reference,
)
from kbslurm.problems.fields import (
    at_place,
    budget_of,
    call_budgets,
    capped_text,
    choice_of,
    cold_of,
    gpu_types,
    limits_of,
    problem_name,
    required_value,
)
from kbslurm.problems.folder import FILE_NAME, FILES_CAP, SUBMISSION, Folder, Task, repository_root, sharing_notes
from kbslurm.problems.marked_yaml import Marked, read_yaml, unknown_keys
from kbslurm.problems.python_code import (
    Function,
    module_name,
    parsed_code,
    required_function,
)
from kbslurm.problems.roles import (
    ALL_MODES,
    NO_SEED,
    allowed_modes,
    bundled_main,
    check_outputs_compiled,
    check_reference,
    importing_reference,
    including_unseen,
    judge_only_compiled,
    judge_only_files,
    outputs_of,
    runner_files,
)
from kbslurm_eval.shared import recorded
from kbslurm_eval.shared.wire import OPERATIONS, Build, counted_operation

LANGUAGES = frozenset({"Python", "Triton", "CUDA", "HIP", "CuteDSL"})
TASK_KEYS = frozenset(
    {
        *("files", "lang", "config", "description", "templates", "tests", "benchmarks", "libraries"),
        *("test_timeout", "benchmark_timeout", "ranked_timeout", "ranking_by", "seed", "multi_gpu", "gpus", "kbslurm"),
    }
)
OWN_KEYS = frozenset(
    {
        *("hidden", "modes", "eval", "call", "baseline", "flops", "bytes", "reference", "judge_files", "runner_files"),
        *("memory_mb", "processes", "launches", "calls", "max_calls", "target_s"),
        *("cold", "precision", "most_launches"),
        *("build", "build_timeout", "build_mb", "arrays", "outputs", "wrapper", "sizes"),
    }
)
CONFIG_KEYS = ("sources", "include_dirs", "defines", "compile_flags")


def problem_of_task(file: Path, *, root: Path | None, name: str | None) -> Problem:
    base = file.parent
    table = read_yaml(file).table()
    own = table["kbslurm"].table() if "kbslurm" in table else {}
    folder = Folder(base=base, root=(root or repository_root(base) or base).resolve())
    if not base.is_relative_to(folder.root):
        there = folder.root.is_dir()
        what = f"isn't in {folder.root}" if there else f"there is no folder {folder.root} for it to be in"
        raise Invalid(what, file=file, hint="Give --root a folder that the problem is in.")
    task = Task(file=file, table=table, own=own, folder=folder)
    task.warnings += unknown_keys(table, TASK_KEYS) + unknown_keys(own, OWN_KEYS)
    compiles = "lang" in table and table["lang"].one_of("py", "cu") == "cu"
    _check_calls(task)
    entry, files, marks = _files(task, SUBMISSION_SUFFIXES if compiles else (".py",))
    reference = _reference_name(task, files, compiles=compiles)
    if reference not in files:
        raise required_value(table, "files", file).wrong(
            f"doesn't list {reference}, so there is nothing to judge submissions with"
        )
    if compiles:
        check_outputs_compiled(task)
    if compiles and not reference.endswith(".py"):
        return _of_compiled_task(task, entry, files, marks, reference, name=name or problem_name(base.name))
    codes = {
        module_name(n): parsed_code(t, (base / marks[n].text()).resolve(), n)
        for n, t in files.items()
        if n.endswith(".py")
    }
    templates = _templates(task)
    main = None if compiles else bundled_main(task, files)
    free = "outputs" in task.own and task.own["outputs"].value == "check"
    check_reference(codes, module_name(reference), module_name(entry), main, open_outputs=free)
    modes = allowed_modes(task, codes, main, entry, reference)
    judge_only = judge_only_files(task, codes, reference, templates, base)
    kept = runner_files(files, codes, main)
    outputs = {} if compiles else outputs_of(task, codes, main, reference)
    generate = required_function(codes[module_name(reference)], ("generate_input",), codes)
    multi_gpu = "multi_gpu" in table and table["multi_gpu"].flag()
    if multi_gpu and compiles:
        raise table["multi_gpu"].wrong(
            "a multi-GPU problem accepts submissions in Python only",
            hint="Leave out `lang: cu`: Python can compile what it needs (load_inline).",
        )
    check = CaseCheck(generate=generate, ranks=multi_gpu)
    tests = check.cases(required_value(table, "tests", file), least=1)
    benchmarks = check.cases(table["benchmarks"]) if "benchmarks" in table else ()
    hidden = check.cases(own["hidden"], least=1) if "hidden" in own else ()
    if multi_gpu and len({case["world_size"] for case in (*tests, *benchmarks, *hidden)}) > 1:
        raise table["multi_gpu"].wrong(
            "its cases have different values of world_size", hint="All cases run in one launch: split the problem."
        )
    sizes = sizes_of(task, check, benchmarks=bool(benchmarks))
    if not benchmarks:
        task.warn(table.get("benchmarks"), "there are no benchmarks, so only mode test is offered")
        modes = ("test",)
    _warn_of_seed(task, generate)
    build = _build(task, files, {}) if compiles else _python_build(task)
    if compiles:
        kept = [n for n in kept if not has_main(files[n])]
    runner = tuple(
        n for n in kept if n not in judge_only and not (compiles and n.endswith(".py")) and not _stays(task, n)
    )
    for at in importing_reference(codes, runner, reference):
        task.warn(marks[at], f"{at} imports {reference}, which isn't available to the submission")
    return Problem(
        name=name or problem_name(base.name),
        lang="cu" if compiles else "py",
        build=build,
        description=capped_text(table["description"]) if "description" in table else "",
        files={n: files[n] for n in kept},
        runner_files=runner,
        reference=reference,
        entry=entry,
        tests=tests,
        benchmarks=benchmarks,
        hidden=hidden,
        seed=table["seed"].integer(0, 2**63 - 1) if "seed" in table else None,
        ranking_by=choice_of(table, "ranking_by", "last", "mean", "geom"),
        limits=limits_of(table, own),
        budget=budget_of(own),
        cold=cold_of(own),
        config=_config(task) | outputs | _wrapper(task, runner, compiles=compiles),
        multi_gpu=multi_gpu,
        gpus=gpu_types(table),
        templates=templates,
        modes=modes,
        warnings=tuple(task.warnings),
        sizes=sizes,
    )


def _stays(task: Task, name: str) -> bool:
    """Whether it is recorded tensors, which reach submissions as inputs, unless the problem says otherwise."""
    shared = task.own["runner_files"].texts() if "runner_files" in task.own else ()
    return name.endswith(recorded.SUFFIX) and name not in shared


def _wrapper(task: Task, runner: tuple[str, ...], *, compiles: bool) -> dict[str, str]:
    """The file that turns a submission of another shape into one call."""
    if "wrapper" not in task.own:
        return {}
    at = task.own["wrapper"]
    if compiles:
        raise at.wrong("submissions in C++ have no wrapper")
    if "call" in task.own:
        raise at.wrong("says what is called, so `call` has no meaning", hint="Leave one of them out.")
    if at.text() not in runner or not at.text().endswith(".py"):
        raise at.wrong(f"{at.text()} isn't a .py file that submissions see", hint="List it among the files.")
    code = parsed_code(task.folder.text(_source_of(task, at.text()), at), task.file.parent / at.text(), at.text())
    required_function(code, ("entry_point",), {})
    return {"wrapper": at.text()}


def _source_of(task: Task, name: str) -> str:
    rows = (row.table() for row in task.table["files"].items())
    return next(table["source"].text() for table in rows if table["name"].text() == name)


def _config(task: Task) -> dict[str, Any]:
    """Extra settings for the harness: the function to call, and the trusted baseline measured with every submission."""
    found = call_budgets(task.own) | _arrays(task)
    if "baseline" in task.own:
        at = task.own["baseline"]
        text = task.folder.text(at.text(), at)
        found["baseline"] = at_place(at, lambda: checked_source(PurePosixPath(at.text()).name, text.encode())).text
    for name in FORMULAS:
        if name in task.own:
            found[name] = _formula(task, task.own[name], name)
    return found


def _formula(task: Task, at: Marked, name: str) -> str:
    """A formula for a case's work, which must have a value for every benchmark."""
    text = at.text() if isinstance(at.value, str) else str(at.number(0.0, 1e30))
    if text == SHAPES and name == "bytes":
        return text
    if text.startswith(f"{SHAPES}("):
        if name != "flops" or counted_operation(text) is None:
            raise at.wrong(
                f"{text[:60]!r} isn't known",
                hint=f"Use `flops: shapes(OPERATION)` with one of {', '.join(OPERATIONS)}.",
            )
        if "multi_gpu" in task.table and task.table["multi_gpu"].flag():
            raise at.wrong("operations aren't counted for several GPUs", hint="Write a formula.")
        return text
    rows = list(task.table["benchmarks"].items()) if "benchmarks" in task.table else []
    if "sizes" in task.own:
        of_types = (lists.table() for lists in task.own["sizes"].table().values())
        rows += [row for lists in of_types if "benchmarks" in lists for row in lists["benchmarks"].items()]
    for row in rows:
        values = {key: item.value for key, item in row.table().items() if isinstance(item.value, bool | int | float)}
        at_place(at, partial(amount, text, values))
    return text


def _of_compiled_task(
    task: Task, entry: str, files: Mapping[str, str], marks: Mapping[str, Marked], reference: str, *, name: str
) -> Problem:
    """A problem whose reference is also C++ or CUDA."""
    table, own = task.table, task.own
    if _arrays(task):
        raise own["arrays"].wrong(
            "a C++ reference has its arrays in host memory", hint="Write the reference in Python."
        )
    _wrapper(task, (), compiles=True)
    found = read_reference(reference, files, task.file.parent / reference)
    check = CaseCheck(generate=found.generate)
    tests = check.cases(required_value(table, "tests", task.file), least=1)
    benchmarks = check.cases(table["benchmarks"]) if "benchmarks" in table else ()
    hidden = check.cases(own["hidden"], least=1) if "hidden" in own else ()
    kept = {n: t for n, t in files.items() if not has_main(t)}
    if "multi_gpu" in table and table["multi_gpu"].flag():
        raise table["multi_gpu"].wrong("a multi-GPU problem needs a reference in Python")
    _warn_of_seed(task, found.generate)
    modes: tuple[str, ...] = ALL_MODES if benchmarks else ("test",)
    if "modes" in own:
        modes = tuple(m for m in modes if m in {item.one_of(*ALL_MODES) for item in own["modes"].items()})
    config, templates = _config(task), _templates(task)
    also = [*templates.values(), *([config["baseline"]] if "baseline" in config else [])]
    judge_only = judge_only_compiled(task, kept, reference, found, also)
    runner = tuple(n for n in kept if n not in judge_only)
    for at, unseen in including_unseen(kept, runner):
        task.warn(marks[at], f"{at} includes {unseen}, which isn't available to the submission")
    return Problem(
        name=name,
        lang="cu",
        style="one-file" if found.style == "one-file" else "modern",
        build=_build(task, kept, found.adapter),
        description=capped_text(table["description"]) if "description" in table else "",
        files={n: included_once(t) if n in found.shared else t for n, t in kept.items()},
        runner_files=runner,
        reference=reference,
        entry=entry,
        tests=tests,
        benchmarks=benchmarks,
        hidden=hidden,
        seed=table["seed"].integer(0, 2**63 - 1) if "seed" in table else None,
        ranking_by=choice_of(table, "ranking_by", "last", "mean", "geom"),
        limits=limits_of(table, own),
        budget=budget_of(own),
        cold=cold_of(own),
        config=config,
        gpus=gpu_types(table),
        templates=templates,
        modes=modes,
        warnings=(*task.warnings, *sharing_notes(task.file, reference, found)),
        sizes=sizes_of(task, check, benchmarks=bool(benchmarks)),
    )


def _reference_name(task: Task, files: Mapping[str, str], *, compiles: bool) -> str:
    if "reference" in task.own:
        return task.own["reference"].text()
    return next((n for n in REFERENCES if n in files), "reference.py") if compiles else "reference.py"


def _build(task: Task, files: Mapping[str, str], adapter: Mapping[str, Any]) -> Build:
    """How `lang: cu` submissions are compiled: `config` as in other harnesses, without their programs."""
    if "build" in task.own and task.own["build"].one_of("auto", "always", "never") == "never":
        raise task.own["build"].wrong("submissions in C++ are always built")
    table = task.table["config"].table() if "config" in task.table else {}
    task.warnings += unknown_keys(table, frozenset({"main", *CONFIG_KEYS}))
    told = {key: list(table[key].texts()) if key in table else [] for key in CONFIG_KEYS}
    known = {row.table()["name"].text() for row in task.table["files"].items()}
    for source in told["sources"]:
        if source not in known:
            raise table["sources"].wrong(f"{source} isn't among the files")
    for folder in told["include_dirs"]:
        if ".." in PurePosixPath(folder).parts:
            raise table["include_dirs"].wrong(f"{folder!r} contains ..")
    return Build(
        when="always",
        sources=[n for n in told["sources"] if n in files and not has_main(files[n])],
        include_dirs=told["include_dirs"],
        defines=told["defines"],
        flags=told["compile_flags"],
        adapter=dict(adapter),
        **_build_bounds(task.own),
    )


def _python_build(task: Task) -> Build:
    when: Literal["auto", "always", "never"] = "auto"
    if "build" in task.own:
        when = task.own["build"].one_of("auto", "always", "never")
    return Build(when=when, **_build_bounds(task.own))


def _build_bounds(own: Mapping[str, Marked]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if "build_timeout" in own:
        told["limit_s"] = own["build_timeout"].number(1.0, 3600)
    if "build_mb" in own:
        told["output_bytes"] = own["build_mb"].integer(1, 1024) << 20
    return told


def _arrays(task: Task) -> dict[str, Any]:
    """Where a call's arrays are placed on a GPU board; a C++ reference does this itself."""
    if "arrays" not in task.own:
        return {}
    at = task.own["arrays"]
    where = at.one_of("host", "device")
    if where == "device" and "multi_gpu" in task.table and task.table["multi_gpu"].flag():
        raise at.wrong("with several ranks, arrays are in host memory", hint="Leave it out, or return tensors.")
    return {"arrays": where} if where == "device" else {}


def _check_calls(task: Task) -> None:
    if "call" not in task.own:
        return
    found = call_budgets(task.own)["call"]
    for name in [found] if isinstance(found, str) else found:
        if not PARAMETER_NAME.match(name):
            raise task.own["call"].wrong(f"{name!r} isn't a valid function name")


def _files(task: Task, suffixes: tuple[str, ...]) -> tuple[str, dict[str, str], dict[str, Marked]]:
    rows = required_value(task.table, "files", task.file)
    if len(rows.items()) > FILES_CAP:
        raise rows.wrong(f"more than {FILES_CAP} files")
    entry = ""
    files: dict[str, str] = {}
    marks: dict[str, Marked] = {}
    for row in rows.items():
        table = row.table()
        task.warnings += unknown_keys(table, frozenset({"name", "source"}))
        named, source = required_value(table, "name", task.file, row), required_value(table, "source", task.file, row)
        name = named.text()
        if not FILE_NAME.match(name):
            raise named.wrong(
                f"{name!r} isn't a valid file name", hint="Use a plain name of letters, digits, and _ . -"
            )
        if name in files or name == entry:
            raise named.wrong(f"{name} is listed twice")
        if source.text() != SUBMISSION:
            read = task.folder.recorded if name.endswith(recorded.SUFFIX) else task.folder.text
            files[name], marks[name] = read(source.text(), source), source
            continue
        if entry:
            raise source.wrong(f"{SUBMISSION} is used twice: {entry} and {name}")
        if not name.endswith(suffixes):
            what = "a Python problem" if suffixes == (".py",) else "a compiled problem"
            raise named.wrong(f"the submission to {what} must be a {' or '.join(suffixes)} file, not {name}")
        entry = name
    if not entry:
        raise rows.wrong(f"no file has the source {SUBMISSION}, so there is no place for the submission")
    return entry, files, marks


def _templates(task: Task) -> dict[str, str]:
    if "templates" not in task.table:
        return {}
    found: dict[str, str] = {}
    for language, at in task.table["templates"].table().items():
        if language not in LANGUAGES:
            task.warn(at, f"ignored, since it isn't one of {', '.join(sorted(LANGUAGES))}")
            continue
        found[language] = task.folder.text(at.text(), at)
    return found


def _warn_of_seed(task: Task, generate: Function) -> None:
    """Warn if inputs don't depend on a seed: answers could be memorised."""
    if generate.known and not generate.any_key and "seed" not in generate.parameters:
        task.warn(task.table.get("tests"), NO_SEED)
