"""Which of a problem's files go to the submission, which stay with the judge, and which modes they allow."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kbslurm.errors import Invalid
from kbslurm.problems.compiled_code import (
    SUBMISSION_SUFFIXES,
    CompiledReference,
    includes,
    names_files,
    reached,
)
from kbslurm.problems.fields import call_budgets
from kbslurm.problems.folder import Task, accepted_texts, is_python
from kbslurm.problems.marked_yaml import Marked, unknown_keys
from kbslurm.problems.python_code import (
    Code,
    module_name,
    parsed_code,
    reachable,
    required_function,
)
from kbslurm_eval.shared import recorded
from kbslurm_eval.shared.wire import counted_operation

ALL_MODES = ("test", "benchmark", "leaderboard", "profile")
UNRANKED_MODES = ("test", "benchmark")
JUDGED = frozenset({"generate_input", "check_implementation", "ref_kernel", "reference", "ref"})
# Names for a reference's own answer; the judge uses the first that exists.
ANSWERS = ("ref_kernel", "reference", "ref")
TOLERANCES = ("RTOL", "ATOL")  # how far outputs may be from the reference's answers where it has no check
ENTRY_POINT = "custom_kernel"
NO_SEED = "generate_input has no parameter seed, so inputs only vary if they come from random, numpy.random or torch"


def check_reference(
    codes: Mapping[str, Code], reference: str, entry: str, main: str | None = None, *, open_outputs: bool = False
) -> None:
    """Invalid unless the reference defines what the judge calls. What a bundled eval.py does without isn't needed: a
    check alone says what is right, and without one outputs are compared with the reference's answers."""
    code = codes.get(reference)
    if code is None:
        raise Invalid("the reference must be a .py file")
    used = codes[module_name(main)].names_from(reference) if main and module_name(main) in codes else JUDGED
    if not main and any(code.function(name) is not None for name in TOLERANCES):
        used = JUDGED - {"check_implementation"}
    checks = _has(code, ("check_implementation",), codes) or bool(used & {"check_implementation", "*"})
    for names in (("check_implementation",) if checks else (), ("generate_input",)):
        if names:
            required_function(code, names, codes)
    if not checks or not (main or open_outputs):
        required_function(code, ANSWERS, codes)
    for module in sorted(reachable(reference, codes)):
        if module in codes and entry in codes[module].imports():
            raise Invalid(f"imports {entry}: the judge never loads the submission", file=codes[module].file)


def check_outputs_compiled(task: Task) -> None:
    """Invalid if a check is to say what an answer is: whoever answers in C++ fills what the reference's would be."""
    if "outputs" in task.own and task.own["outputs"].one_of("reference", "check") == "check":
        raise task.own["outputs"].wrong(
            "with `lang: cu` an answer has the type and shape of ref_kernel's, so check isn't possible",
            hint="Leave it out, and define ref_kernel.",
        )


def outputs_of(task: Task, codes: Mapping[str, Code], main: str | None, reference: str) -> dict[str, str]:
    """Who says what an answer is. A bundled eval.py gives its check whatever the submission returned; without one the
    reference's own answer sets type and shape."""
    code = codes[module_name(reference)]
    answers = _has(code, ANSWERS, codes)
    usual = "check" if main or not answers else "reference"
    told = task.own["outputs"].one_of("reference", "check") if "outputs" in task.own else usual
    if told == "reference":
        required_function(code, ANSWERS, codes)
    flops = task.own.get("flops")
    if not answers and flops is not None and counted_operation(flops.value) is not None:
        raise flops.wrong(
            "operations are counted from the shape of the reference's answer, and there is no ref_kernel",
            hint="Define ref_kernel, or write a formula.",
        )
    return {"outputs": told} if told == "check" else {}


def _has(code: Code, names: Sequence[str], codes: Mapping[str, Code]) -> bool:
    try:
        return required_function(code, names, codes) is not None
    except Invalid:
        return False


def bundled_main(task: Task, files: Mapping[str, str]) -> str | None:
    """The bundled eval.py's name, if there is one. It is read, never run."""
    config = task.table.get("config")
    if config is None:
        return "eval.py" if "eval.py" in files else None
    table = config.table()
    task.warnings += unknown_keys(table, frozenset({"main"}))
    if "main" not in table:
        return None
    main = table["main"].text()
    if main not in files:
        task.warn(table["main"], f"{main} isn't among the files; our own judge is used anyway")
        return None
    return main


def allowed_modes(
    task: Task, codes: Mapping[str, Code], main: str | None, entry: str, reference: str
) -> tuple[str, ...]:
    modes: tuple[str, ...] = ALL_MODES
    if "modes" in task.own:
        asked = [item.one_of(*ALL_MODES) for item in task.own["modes"].items()]
        if not asked:
            raise task.own["modes"].wrong("names no mode")
        modes = tuple(mode for mode in ALL_MODES if mode in asked)
    if "eval" in task.own:
        task.own["eval"].one_of("standard")
        return modes
    code = codes.get(module_name(main)) if main else None
    if code is None:
        return modes
    asked = call_budgets(task.own).get("call", ENTRY_POINT)
    call = {asked} if isinstance(asked, str) else set(asked)
    several = "multi_gpu" in task.table and task.table["multi_gpu"].flag()
    more = sorted(_beyond(code, module_name(entry), module_name(reference), call, several=several))
    if not more:
        return modes
    at = task.table["config"].table()["main"] if "config" in task.table else None
    return _without_ranking(
        task, at, modes, f"{main} isn't run, so these parts of it are ignored: {'; '.join(more)}",
        " (set `kbslurm: {eval: standard}` if only the judge's own three functions matter)",
    )  # fmt: skip


def _without_ranking(task: Task, at: Marked | None, modes: Sequence[str], why: str, hint: str = "") -> tuple[str, ...]:
    left = tuple(mode for mode in modes if mode in UNRANKED_MODES)
    task.warn(at, f"{why}; only the modes {' and '.join(left)} are offered{hint}")
    return left


def _beyond(code: Code, entry: str, reference: str, call: set[str], *, several: bool) -> Iterable[str]:
    """What an eval.py does beyond calling the entry point, generate_input, ref_kernel and check_implementation."""
    for name in sorted(code.names_from(entry) - call):
        yield f"the entry point {name}" if name != "*" else "anything else it imports from the submission"
    for name in sorted(code.names_from(reference) - JUDGED):
        yield f"{name} of the reference" if name != "*" else "anything else it imports from the reference"
    for module in (entry, reference):
        if code.imports_at_run_time(module):
            yield f"{module} imported at run time"
    yield from timed_otherwise(code)
    parallel = "torch" in code.imports() and any(name.startswith("distributed") for name in code.names_from("torch"))
    if parallel and not several:
        yield "several processes (torch.distributed)"


def timed_otherwise(code: Code) -> Iterable[str]:
    """What an eval.py times other than one call after another: a call's launches alone, or several calls as one."""
    loops = (ast.ListComp, ast.GeneratorExp, ast.For)
    if any(isinstance(node, ast.Attribute) and node.attr in ("CUDAGraph", "replay") for node in ast.walk(code.tree)):
        yield "timing the replay of a CUDA graph"
    for node in ast.walk(code.tree):
        bodies = [getattr(node, name, None) for name in ("body", "orelse")]
        for body in (found for found in bodies if isinstance(found, list)):
            for before, between, after in zip(body, body[1:], body[2:], strict=False):
                inside = [n for n in ast.walk(between) if isinstance(n, loops)]
                if _records(before) and _records(after) and any(_calls_entry(n) for n in inside):
                    yield "timing several calls as one"
                    return


def _records(statement: ast.stmt) -> bool:
    """Whether it takes the time of a device."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="record"))):
            return True
        case _:
            return False


def _calls_entry(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == ENTRY_POINT for n in ast.walk(node)
    )


def judge_only_files(
    task: Task, codes: Mapping[str, Code], reference: str, templates: Mapping[str, str], base: Path
) -> frozenset[str]:
    """The files that stay with the judge: the reference and what only it imports, unless the problem says otherwise.

    What a template, an accepted submission or another listed file imports is shared. `task.py` always is: by convention
    it has the types that submissions use.
    """
    home = module_name(reference)
    judged = reachable(home, codes)
    roots = [code for module, code in codes.items() if module not in judged]
    roots += [parsed_code(text, task.file.parent / f"template {name}", name) for name, text in templates.items()
              if name in {"Python", "Triton", "CuteDSL"} and is_python(text)]  # fmt: skip
    roots += [parsed_code(text, base / "submissions", "") for text in accepted_texts(base) if is_python(text)]
    others = {module: code for module, code in codes.items() if module != home}
    shared = {"task"} | {
        found for code in roots for start in code.imports() & set(others) for found in reachable(start, others)
    }
    kept = {codes[module].name for module in judged - shared if module in codes} | {reference}
    kept |= set(_named_files(task, "judge_files"))
    for name in _named_files(task, "runner_files"):
        if name == reference:
            raise task.own["runner_files"].wrong(f"{reference} belongs to the judge, so submissions must not see it")
        kept -= {name}
    return frozenset(kept)


def judge_only_compiled(
    task: Task, files: Mapping[str, str], reference: str, found: CompiledReference, also: Iterable[str]
) -> frozenset[str]:
    """The same where the reference is C++ or CUDA: what only it names stays, unless the problem says otherwise.

    What the header of the data types includes is shared, and what a source, a template, an accepted submission, a text
    in `also` or another listed file includes. Python and recorded tensors are of no use to submissions.
    """
    told = task.table["config"].table() if "config" in task.table else {}
    sources = set(told["sources"].texts() if "sources" in told else ()) & set(files) - {reference}
    others = {name: text for name, text in files.items() if name != reference or name in found.shared}
    needed = reached({*found.shared, *sources}, others, includes)
    to_runner = _told_to_share(task, files, others, reference)
    texts = [*also, *accepted_texts(task.file.parent, SUBMISSION_SUFFIXES)]
    roots = {*needed, *to_runner, *(name for text in texts for name in includes(text))}
    judged = reached([reference], files, names_files)
    kept = {name for name in files if name in judged or name.endswith((".py", recorded.SUFFIX))}
    kept -= reached({*roots, *(set(others) - kept)}, others, includes)
    for item in task.own["judge_files"].items() if _named_files(task, "judge_files") else ():
        name = item.text()
        if name in to_runner:
            raise item.wrong(f"{name} is among the runner_files, too")
        if name in needed:
            raise item.wrong(f"{name} can't stay with the judge: {_why_needed(name, files, needed, found, sources)}")
        kept.add(name)
    return frozenset(kept & set(files))


def _told_to_share(task: Task, files: Mapping[str, str], others: Mapping[str, str], reference: str) -> set[str]:
    """What `runner_files` names."""
    for item in task.own["runner_files"].items() if _named_files(task, "runner_files") else ():
        if item.text() not in files:
            raise item.wrong(f"{item.text()} never reaches a submission: it is a program, or the submission's own file")
        if item.text() not in others:
            raise item.wrong(f"{reference} belongs to the judge, so submissions must not see it")
    return set(_named_files(task, "runner_files"))


def _why_needed(
    name: str, files: Mapping[str, str], needed: set[str], found: CompiledReference, sources: set[str]
) -> str:
    if name in found.shared:
        return "it defines input_t, the type of the data"
    if name in sources:
        return "it is among config.sources, which are compiled with every submission"
    by = min(other for other in needed if name in includes(files[other]))
    return f"every submission is compiled with {by}, which includes it"


def including_unseen(files: Mapping[str, str], runner: Sequence[str]) -> list[tuple[str, str]]:
    """Which file that submissions see includes which that they don't."""
    return [(at, name) for at in runner for name in sorted(includes(files[at]) & set(files) - set(runner))]


def _named_files(task: Task, key: str) -> tuple[str, ...]:
    if key not in task.own:
        return ()
    known = {row.table()["name"].text() for row in task.table["files"].items()}
    for item in task.own[key].items():
        if item.text() not in known:
            raise item.wrong(f"{item.text()} isn't among the files")
    return task.own[key].texts()


def runner_files(files: Mapping[str, str], codes: Mapping[str, Code], main: str | None) -> list[str]:
    """All files except the bundled eval.py, unless another file imports it."""
    if main is None:
        return list(files)
    imported = any(module_name(main) in code.imports() for code in codes.values() if code.name != main)
    return [name for name in files if name != main or imported]


def importing_reference(codes: Mapping[str, Code], runner: Sequence[str], reference: str) -> list[str]:
    home = module_name(reference)
    return [code.name for code in codes.values() if code.name in runner and home in code.imports()]
