"""Problems and problem sets, from disk to values: `task.yml` directories, one reference file, sets of them.

Nothing of a problem is run here. A bundled eval.py is never run anywhere: it would put judge and submission into one
process. What it does beyond the three functions that our judge calls isn't honoured, and the problem says so in its
warnings and offers no leaderboard mode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from kbslurm.domain.contest import board_name, gpu_name, parsed_deadline, zone
from kbslurm.domain.physics import FORMULAS, amount
from kbslurm.domain.problem import Problem
from kbslurm.domain.source import checked_source
from kbslurm.errors import Invalid, KbslurmError, NotFound, TooLarge
from kbslurm.flow.manifest import JUDGES_SHARE, STARTING_S
from kbslurm.problems.compiled_code import (
    REFERENCES,
    SUBMISSION_SUFFIXES,
    CompiledReference,
    baseline_of,
    called_as_submission,
    has_main,
    included_once,
    literal_cases,
    read_reference,
    takes_data,
)
from kbslurm.problems.marked_yaml import Marked, read_yaml, unknown_keys
from kbslurm.problems.python_code import (
    Code,
    Function,
    module_name,
    one_file_style,
    parsed_code,
    reachable,
    required_function,
)
from kbslurm_eval.wire import Budget, Build, Limits, Params, Scalar

SUBMISSION = "@SUBMISSION@"
TASK_FILES = ("task.yml", "task.yaml")
FILE_CAP = 1_000_000
ALL_FILES_CAP = 4_000_000
FILES_CAP = 100
CASES_CAP = 256
RANKS_CAP = 64
LIST_CAP = 4096
TEXT_CAP = 100_000
ALL_MODES = ("test", "benchmark", "leaderboard", "profile")
UNRANKED_MODES = ("test", "benchmark")
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
        *("build", "build_timeout", "build_mb", "arrays"),
    }
)
CONFIG_KEYS = ("sources", "include_dirs", "defines", "compile_flags")
SET_KEYS = frozenset({"name", "deadline", "description", "zone", "problems"})
ENTRY_KEYS = frozenset({"directory", "name", "deadline", "gpus"})
JUDGED = frozenset({"generate_input", "check_implementation", "ref_kernel", "reference", "ref"})
# What a reference's own answer may be called; the judge takes the first of these.
ANSWERS = ("ref_kernel", "reference", "ref")
ENTRY_POINT = "custom_kernel"
DEVICE = "device"  # given to generate_input by the judge, where it takes it
NO_SEED = "generate_input takes no seed, so inputs differ only as far as they come from random, numpy.random or torch"
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_PARAM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
K = TypeVar("K", bound=str)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SetEntry:
    """One problem of a set: where it is, and the board that it becomes."""

    directory: Path
    name: str
    deadline: datetime | None
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProblemSet:
    """A competition as its yaml says it. `root` is the folder that its problems' files must lie in."""

    name: str
    description: str
    deadline: datetime | None
    zone: str
    root: Path
    problems: tuple[SetEntry, ...]
    warnings: tuple[str, ...] = ()


def load(path: Path, *, root: Path | None = None, name: str | None = None) -> Problem:
    """The problem in this directory (or task.yml, or one reference file), or Invalid with file, line and key.

    Files may be named upwards with `../` as far as `root`: by default the repository that the problem lies in, or
    else its own directory.
    """
    try:
        place = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise NotFound("problem", str(path), hint="Name a directory with a task.yml, or a reference file.") from None
    if place.is_dir():
        task = next((place / known for known in TASK_FILES if (place / known).is_file()), None)
        if task is None:
            raise Invalid("there is no task.yml in this directory", file=path, hint="See the problem author's guide.")
        return _of_task(task, root=root, name=name)
    if place.name in TASK_FILES:
        return _of_task(place, root=root, name=name)
    match place.suffix:
        case ".py":
            return _of_one_file(place, name=name)
        case ".cu" | ".cuh" | ".cpp" | ".hip":
            return _of_one_compiled_file(place, name=name)
        case ".yaml" | ".yml":
            raise Invalid("a problem set is no problem", file=path, hint="Name one of its directories.")
        case _:
            raise Invalid("neither a task.yml directory nor a reference .py or .cu file", file=path)


def load_set(path: Path, *, root: Path | None = None) -> ProblemSet:
    """The problem set in this yaml. Directories are relative to it; the problems themselves aren't loaded."""
    if not path.is_file():
        raise NotFound("problem set", str(path), hint="Name a set's yaml file.")
    file = path.resolve()
    table = read_yaml(file).table()
    zone_name = table["zone"].text() if "zone" in table else "UTC"
    _placed(table.get("zone"), lambda: zone(zone_name))
    root = (root or _repository(file.parent) or file.parent).resolve()
    deadline = _deadline(table.get("deadline"), zone_name)
    rows = _wanted(table, "problems", file).items()
    problems = tuple(_set_entry(row, file.parent, root, zone_name, deadline) for row in rows)
    _refuse_twins(rows, [entry.name for entry in problems])
    warnings = unknown_keys(table, SET_KEYS) + [w for row in rows for w in unknown_keys(row.table(), ENTRY_KEYS)]
    return ProblemSet(
        name=_capped(table["name"]) if "name" in table else file.stem,
        description=_capped(table["description"]) if "description" in table else "",
        deadline=deadline,
        zone=zone_name,
        root=root,
        problems=problems,
        warnings=tuple(warnings),
    )


def load_each(found: ProblemSet) -> Iterator[tuple[SetEntry, Problem | KbslurmError]]:
    """Each problem of the set under its board's name, or why it can't be loaded: one faulty problem hides no other."""
    for entry in found.problems:
        try:
            yield entry, load(entry.directory, root=found.root, name=entry.name)
        except KbslurmError as error:
            yield entry, error


# ---------------------------------------------------------------------------------------------------- task.yml


@dataclass(kw_only=True)
class _Folder:
    """Where a problem's files may come from, and how much of them was read."""

    base: Path
    root: Path
    read_bytes: int = 0

    def text(self, source: str, at: Marked) -> str:
        """The text of a file named relative to the base, or Invalid."""
        if PurePosixPath(source).is_absolute() or "\x00" in source or not source:
            raise at.wrong(f"{source!r} must be a path relative to the problem")
        try:
            place = (self.base / source).resolve(strict=True)
        except (OSError, RuntimeError):
            raise at.wrong(f"there is no file {source}") from None
        if not place.is_relative_to(self.root):
            raise at.wrong(f"{source} leads out of {self.root.name}/", hint="Keep a problem's files in its repository.")
        if not place.is_file():
            raise at.wrong(f"{source} isn't a file")
        return self.decoded(place, source, at)

    def decoded(self, place: Path, source: str, at: Marked) -> str:
        try:
            with place.open("rb") as stream:
                data = stream.read(FILE_CAP + 1)
        except OSError as error:
            raise at.wrong(f"{source} can't be read: {error.strerror or error}") from None
        self.read_bytes += len(data)
        if len(data) > FILE_CAP or self.read_bytes > ALL_FILES_CAP:
            what = f"{source} is over {FILE_CAP:,} bytes"
            if len(data) <= FILE_CAP:
                what = f"the problem's files come to more than {ALL_FILES_CAP:,} bytes"
            raise TooLarge(what, file=at.file, line=at.line, key=at.key)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise at.wrong(f"{source} isn't UTF-8 text") from None


@dataclass(kw_only=True)
class _Task:
    """A task.yml while it is being read."""

    file: Path
    table: Mapping[str, Marked]
    own: Mapping[str, Marked]
    folder: _Folder
    warnings: list[str] = field(default_factory=list)

    def warn(self, at: Marked | None, message: str) -> None:
        place = f"{at.file}:{at.line}: {at.key}" if at else str(self.file)
        self.warnings.append(f"{place}: {message}")


def _of_task(file: Path, *, root: Path | None, name: str | None) -> Problem:
    base = file.parent
    table = read_yaml(file).table()
    own = table["kbslurm"].table() if "kbslurm" in table else {}
    folder = _Folder(base=base, root=(root or _repository(base) or base).resolve())
    if not base.is_relative_to(folder.root):
        raise Invalid(f"lies outside of {folder.root}", file=file)
    task = _Task(file=file, table=table, own=own, folder=folder)
    task.warnings += unknown_keys(table, TASK_KEYS) + unknown_keys(own, OWN_KEYS)
    compiles = "lang" in table and table["lang"].one_of("py", "cu") == "cu"
    _check_calls(task)
    entry, files, marks = _files(task, SUBMISSION_SUFFIXES if compiles else (".py",))
    reference = _reference_name(task, files, compiles=compiles)
    if reference not in files:
        raise _wanted(table, "files", file).wrong(f"lists no {reference}, so nothing could judge a submission")
    if compiles and not reference.endswith(".py"):
        return _of_compiled_task(task, entry, files, reference, name=name or problem_name(base.name))
    codes = {
        module_name(n): parsed_code(t, (base / marks[n].text()).resolve(), n)
        for n, t in files.items()
        if n.endswith(".py")
    }
    templates = _templates(task)
    _check_reference(codes, module_name(reference), module_name(entry))
    main = None if compiles else _bundled_main(task, files)
    modes = _modes(task, codes, main, entry, reference)
    judge_only = _judge_only(task, codes, reference, templates, base)
    kept = _kept(files, codes, main)
    generate = required_function(codes[module_name(reference)], ("generate_input",), codes)
    multi_gpu = "multi_gpu" in table and table["multi_gpu"].flag()
    if multi_gpu and compiles:
        raise table["multi_gpu"].wrong(
            "a problem for several GPUs takes submissions in Python",
            hint="Leave `lang: cu` out: Python may compile what it needs (load_inline).",
        )
    check = _CaseCheck(generate=generate, ranks=multi_gpu)
    tests = check.cases(_wanted(table, "tests", file), least=1)
    benchmarks = check.cases(table["benchmarks"]) if "benchmarks" in table else ()
    hidden = check.cases(own["hidden"], least=1) if "hidden" in own else ()
    if multi_gpu and len({case["world_size"] for case in (*tests, *benchmarks, *hidden)}) > 1:
        raise table["multi_gpu"].wrong("its cases differ in world_size", hint="One launch holds all cases: split it.")
    if not benchmarks:
        task.warn(table.get("benchmarks"), "there are no benchmarks, so only the mode test is offered")
        modes = ("test",)
    _warn_of_seed(task, generate)
    build = _build(task, files, {}) if compiles else _python_build(task)
    if compiles:
        kept = [n for n in kept if not has_main(files[n])]
    runner = tuple(n for n in kept if n not in judge_only and not (compiles and n.endswith(".py")))
    for at in _importing_reference(codes, runner, reference):
        task.warn(marks[at], f"{at} imports {reference}, which the submission's side doesn't have")
    return Problem(
        name=name or problem_name(base.name),
        lang="cu" if compiles else "py",
        build=build,
        description=_capped(table["description"]) if "description" in table else "",
        files={n: files[n] for n in kept},
        runner_files=runner,
        reference=reference,
        entry=entry,
        tests=tests,
        benchmarks=benchmarks,
        hidden=hidden,
        seed=table["seed"].whole(0, 2**63 - 1) if "seed" in table else None,
        ranking_by=_choice(table, "ranking_by", "last", "mean", "geom"),
        limits=_limits(table, own),
        budget=_budget(own),
        config=_config(task),
        multi_gpu=multi_gpu,
        gpus=_gpus(table),
        templates=templates,
        modes=modes,
        warnings=tuple(task.warnings),
    )


def _config(task: _Task) -> dict[str, Any]:
    """What else the harness is told: the function to call, and the trusted submission that is measured beside all."""
    found = _calls(task.own) | _arrays(task)
    if "baseline" in task.own:
        at = task.own["baseline"]
        text = task.folder.text(at.text(), at)
        found["baseline"] = _placed(at, lambda: checked_source(PurePosixPath(at.text()).name, text.encode())).text
    for name in FORMULAS:
        if name in task.own:
            found[name] = _formula(task, task.own[name])
    return found


def _formula(task: _Task, at: Marked) -> str:
    """A formula for what a case needs, which must come to an amount for every benchmark."""
    text = at.text() if isinstance(at.value, str) else str(at.number(0.0, 1e30))
    rows = task.table["benchmarks"].items() if "benchmarks" in task.table else ()
    for row in rows:
        values = {key: item.value for key, item in row.table().items() if isinstance(item.value, bool | int | float)}
        _placed(at, partial(amount, text, values))
    return text


def _of_compiled_task(task: _Task, entry: str, files: Mapping[str, str], reference: str, *, name: str) -> Problem:
    """A problem whose reference is C++ or CUDA, too."""
    table, own = task.table, task.own
    if _arrays(task):
        raise own["arrays"].wrong("a reference in C++ has its arrays in the host's memory", hint="Write it in Python.")
    found = read_reference(reference, files, task.file.parent / reference)
    check = _CaseCheck(generate=found.generate)
    tests = check.cases(_wanted(table, "tests", task.file), least=1)
    benchmarks = check.cases(table["benchmarks"]) if "benchmarks" in table else ()
    hidden = check.cases(own["hidden"], least=1) if "hidden" in own else ()
    kept = {n: t for n, t in files.items() if not has_main(t)}
    if "multi_gpu" in table and table["multi_gpu"].flag():
        raise table["multi_gpu"].wrong("a problem for several GPUs has a reference in Python")
    _warn_of_seed(task, found.generate)
    modes: tuple[str, ...] = ALL_MODES if benchmarks else ("test",)
    if "modes" in own:
        modes = tuple(m for m in modes if m in {item.one_of(*ALL_MODES) for item in own["modes"].items()})
    return Problem(
        name=name,
        lang="cu",
        style="one-file" if found.style == "one-file" else "modern",
        build=_build(task, kept, found.adapter),
        description=_capped(table["description"]) if "description" in table else "",
        files={n: included_once(t) if n in found.shared else t for n, t in kept.items()},
        runner_files=tuple(n for n in kept if n != reference or n in found.shared),
        reference=reference,
        entry=entry,
        tests=tests,
        benchmarks=benchmarks,
        hidden=hidden,
        seed=table["seed"].whole(0, 2**63 - 1) if "seed" in table else None,
        ranking_by=_choice(table, "ranking_by", "last", "mean", "geom"),
        limits=_limits(table, own),
        budget=_budget(own),
        config=_config(task),
        gpus=_gpus(table),
        templates=_templates(task),
        modes=modes,
        warnings=(*task.warnings, *_told_of_sharing(task.file, reference, found)),
    )


def _told_of_sharing(file: Path, reference: str, found: CompiledReference) -> tuple[str, ...]:
    if reference not in found.shared:
        return ()
    return (f"{file}: {reference} holds the types of the data, so submissions see all of it; move them to a header",)


def _reference_name(task: _Task, files: Mapping[str, str], *, compiles: bool) -> str:
    if "reference" in task.own:
        return task.own["reference"].text()
    return next((n for n in REFERENCES if n in files), "reference.py") if compiles else "reference.py"


def _build(task: _Task, files: Mapping[str, str], adapter: Mapping[str, Any]) -> Build:
    """How submissions of `lang: cu` are compiled: `config` as other harnesses have it, without their programs."""
    table = task.table["config"].table() if "config" in task.table else {}
    task.warnings += unknown_keys(table, frozenset({"main", *CONFIG_KEYS}))
    told = {key: list(table[key].texts()) if key in table else [] for key in CONFIG_KEYS}
    known = {row.table()["name"].text() for row in task.table["files"].items()}
    for source in told["sources"]:
        if source not in known:
            raise table["sources"].wrong(f"{source} isn't among the files")
    for folder in told["include_dirs"]:
        if ".." in PurePosixPath(folder).parts:
            raise table["include_dirs"].wrong(f"{folder!r} leads upwards")
    return Build(
        when="always",
        sources=[n for n in told["sources"] if n in files and not has_main(files[n])],
        include_dirs=told["include_dirs"],
        defines=told["defines"],
        flags=told["compile_flags"],
        adapter=dict(adapter),
        **_build_bounds(task.own),
    )


def _python_build(task: _Task) -> Build:
    when: Literal["auto", "always", "never"] = "auto"
    if "build" in task.own:
        when = task.own["build"].one_of("auto", "always", "never")
    return Build(when=when, **_build_bounds(task.own))


def _build_bounds(own: Mapping[str, Marked]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if "build_timeout" in own:
        told["limit_s"] = own["build_timeout"].number(1.0, 3600)
    if "build_mb" in own:
        told["output_bytes"] = own["build_mb"].whole(1, 1024) << 20
    return told


def _calls(own: Mapping[str, Marked]) -> dict[str, Any]:
    if "call" not in own:
        return {}
    called = own["call"]
    return {"call": list(called.texts()) if isinstance(called.value, list) else called.text()}


def _arrays(task: _Task) -> dict[str, Any]:
    """Where the arrays of a call lie on a GPU's board; a reference in C++ has its own ways."""
    if "arrays" not in task.own:
        return {}
    at = task.own["arrays"]
    where = at.one_of("host", "device")
    if where == "device" and "multi_gpu" in task.table and task.table["multi_gpu"].flag():
        raise at.wrong("several ranks get their arrays in the host's memory", hint="Leave it out, or give tensors.")
    return {"arrays": where} if where == "device" else {}


def _check_calls(task: _Task) -> None:
    if "call" not in task.own:
        return
    found = _calls(task.own)["call"]
    for name in [found] if isinstance(found, str) else found:
        if not _PARAM.match(name):
            raise task.own["call"].wrong(f"{name!r} can't be a function's name")


def _files(task: _Task, suffixes: tuple[str, ...]) -> tuple[str, dict[str, str], dict[str, Marked]]:
    rows = _wanted(task.table, "files", task.file)
    if len(rows.items()) > FILES_CAP:
        raise rows.wrong(f"more than {FILES_CAP} files")
    entry = ""
    files: dict[str, str] = {}
    marks: dict[str, Marked] = {}
    for row in rows.items():
        table = row.table()
        task.warnings += unknown_keys(table, frozenset({"name", "source"}))
        named, source = _wanted(table, "name", task.file, row), _wanted(table, "source", task.file, row)
        name = named.text()
        if not _FILE_NAME.match(name):
            raise named.wrong(f"{name!r} can't be a file's name", hint="A plain name: letters, digits, and _ . -")
        if name in files or name == entry:
            raise named.wrong(f"{name} stands twice among the files")
        if source.text() != SUBMISSION:
            files[name], marks[name] = task.folder.text(source.text(), source), source
            continue
        if entry:
            raise source.wrong(f"{SUBMISSION} stands twice: {entry} and {name}")
        if not name.endswith(suffixes):
            what = "a Python problem" if suffixes == (".py",) else "a compiled problem"
            raise named.wrong(f"the submission of {what} is a {' or '.join(suffixes)} file, not {name}")
        entry = name
    if not entry:
        raise rows.wrong(f"no file is {SUBMISSION}: where would the submission go?")
    return entry, files, marks


def _templates(task: _Task) -> dict[str, str]:
    if "templates" not in task.table:
        return {}
    found: dict[str, str] = {}
    for language, at in task.table["templates"].table().items():
        if language not in LANGUAGES:
            task.warn(at, f"not one of {', '.join(sorted(LANGUAGES))}, ignored")
            continue
        found[language] = task.folder.text(at.text(), at)
    return found


def _check_reference(codes: Mapping[str, Code], reference: str, entry: str) -> None:
    code = codes.get(reference)
    if code is None:
        raise Invalid("the reference must be a .py file")
    for names in (("check_implementation",), ("generate_input",), ANSWERS):
        required_function(code, names, codes)
    for module in sorted(reachable(reference, codes)):
        if module in codes and entry in codes[module].imports():
            raise Invalid(f"imports {entry}: the judge never loads the submission", file=codes[module].file)


def _bundled_main(task: _Task, files: Mapping[str, str]) -> str | None:
    """The bundled eval.py's name, when there is one. It is read, never run."""
    config = task.table.get("config")
    if config is None:
        return "eval.py" if "eval.py" in files else None
    table = config.table()
    task.warnings += unknown_keys(table, frozenset({"main"}))
    if "main" not in table:
        return None
    main = table["main"].text()
    if main not in files:
        task.warn(table["main"], f"{main} isn't among the files; our own judge is used in any case")
        return None
    return main


def _modes(task: _Task, codes: Mapping[str, Code], main: str | None, entry: str, reference: str) -> tuple[str, ...]:
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
    asked = _calls(task.own).get("call", ENTRY_POINT)
    call = {asked} if isinstance(asked, str) else set(asked)
    several = "multi_gpu" in task.table and task.table["multi_gpu"].flag()
    more = sorted(_beyond(code, module_name(entry), module_name(reference), call, several=several))
    if not more:
        return modes
    at = task.table["config"].table()["main"] if "config" in task.table else None
    return _without_ranking(
        task, at, modes, f"{main} isn't run, and these of it aren't honoured: {'; '.join(more)}",
        " (say `kbslurm: {eval: standard}` if the judge's own three functions are all that counts)",
    )  # fmt: skip


def _without_ranking(task: _Task, at: Marked | None, modes: Sequence[str], why: str, hint: str = "") -> tuple[str, ...]:
    left = tuple(mode for mode in modes if mode in UNRANKED_MODES)
    task.warn(at, f"{why}; only the modes {' and '.join(left)} are offered{hint}")
    return left


def _beyond(code: Code, entry: str, reference: str, call: set[str], *, several: bool) -> Iterable[str]:
    """What an eval.py does beyond calling the entry point, generate_input, ref_kernel and check_implementation."""
    for name in sorted(code.names_from(entry) - call):
        yield f"the entry point {name}" if name != "*" else "whatever else it imports from the submission"
    for name in sorted(code.names_from(reference) - JUDGED):
        yield f"{name} of the reference" if name != "*" else "whatever else it imports from the reference"
    for module in (entry, reference):
        if code.imports_at_run_time(module):
            yield f"{module} imported at run time"
    parallel = "torch" in code.imports() and any(name.startswith("distributed") for name in code.names_from("torch"))
    if parallel and not several:
        yield "several processes (torch.distributed)"


def _judge_only(
    task: _Task, codes: Mapping[str, Code], reference: str, templates: Mapping[str, str], base: Path
) -> frozenset[str]:
    """The files that stay with the judge: the reference and what only it imports, unless the problem says otherwise.

    What a template, an accepted submission or another listed file imports is shared. `task.py` always is: by custom
    it holds the types that submissions are written with.
    """
    home = module_name(reference)
    judged = reachable(home, codes)
    roots = [code for module, code in codes.items() if module not in judged]
    roots += [parsed_code(text, task.file.parent / f"template {name}", name) for name, text in templates.items()
              if name in {"Python", "Triton", "CuteDSL"} and _is_python(text)]  # fmt: skip
    roots += [parsed_code(text, base / "submissions", "") for text in _accepted(base) if _is_python(text)]
    others = {module: code for module, code in codes.items() if module != home}
    shared = {"task"} | {
        found for code in roots for start in code.imports() & set(others) for found in reachable(start, others)
    }
    kept = {codes[module].name for module in judged - shared if module in codes} | {reference}
    kept |= set(_named_files(task, "judge_files", codes))
    for name in _named_files(task, "runner_files", codes):
        if name == reference:
            raise task.own["runner_files"].wrong(f"{reference} is the judge's, a submission must not see it")
        kept -= {name}
    return frozenset(kept)


def _named_files(task: _Task, key: str, codes: Mapping[str, Code]) -> tuple[str, ...]:
    if key not in task.own:
        return ()
    known = {row.table()["name"].text() for row in task.table["files"].items()}
    for item in task.own[key].items():
        if item.text() not in known:
            raise item.wrong(f"{item.text()} isn't among the files")
    return task.own[key].texts()


def _accepted(base: Path) -> list[str]:
    folder = base / "submissions" / "accepted"
    if not folder.is_dir():
        return []
    found = [file for file in sorted(folder.glob("*.py"))[:20] if file.is_file() and not file.is_symlink()]
    return [file.read_text(encoding="utf-8", errors="replace") for file in found if file.stat().st_size <= FILE_CAP]


def _is_python(text: str) -> bool:
    try:
        parsed_code(text, Path("template"), "template")
    except Invalid:
        return False
    return True


def _kept(files: Mapping[str, str], codes: Mapping[str, Code], main: str | None) -> list[str]:
    """All files but the bundled eval.py; that one too, when another file imports it."""
    if main is None:
        return list(files)
    imported = any(module_name(main) in code.imports() for code in codes.values() if code.name != main)
    return [name for name in files if name != main or imported]


def _importing_reference(codes: Mapping[str, Code], runner: Sequence[str], reference: str) -> list[str]:
    home = module_name(reference)
    return [code.name for code in codes.values() if code.name in runner and home in code.imports()]


def _warn_of_seed(task: _Task, generate: Function) -> None:
    """A problem whose inputs don't depend on a seed can be answered from memory: say so."""
    if generate.known and not generate.any_key and "seed" not in generate.parameters:
        task.warn(task.table.get("tests"), NO_SEED)


def _limits(table: Mapping[str, Marked], own: Mapping[str, Marked]) -> Limits:
    usual = Limits()
    timeout = {
        key: table[key].number(0.1, 7200) if key in table else default
        for key, default in (
            ("test_timeout", usual.test_s),
            ("benchmark_timeout", usual.benchmark_s),
            ("ranked_timeout", usual.ranked_s),
        )
    }
    test_s, benchmark_s, ranked_s = timeout.values()
    return Limits(
        test_s=test_s,
        benchmark_s=benchmark_s,
        ranked_s=ranked_s,
        total_s=JUDGES_SHARE * (test_s + benchmark_s + 2 * ranked_s) + STARTING_S,
        memory_bytes=own["memory_mb"].whole(16, 1 << 22) << 20 if "memory_mb" in own else usual.memory_bytes,
        processes=own["processes"].whole(1, 65536) if "processes" in own else usual.processes,
    )


def _budget(own: Mapping[str, Marked]) -> Budget:
    usual = Budget()
    calls = own["calls"].whole(1, 10_000) if "calls" in own else usual.calls
    return Budget(
        launches=own["launches"].whole(1, 50) if "launches" in own else usual.launches,
        calls=calls,
        max_calls=own["max_calls"].whole(calls, 100_000) if "max_calls" in own else max(usual.max_calls, calls),
        target_s=own["target_s"].number(0.0, 60.0) if "target_s" in own else usual.target_s,
    )


# -------------------------------------------------------------------------------------------------------- cases


@dataclass(frozen=True, kw_only=True)
class _CaseCheck:
    """What a case may hold: values that JSON keeps as they are, under keys that generate_input takes."""

    generate: Function
    ranks: bool = False

    def cases(self, rows: Marked, *, least: int = 0) -> tuple[Params, ...]:
        items = rows.items()
        if not least <= len(items) <= CASES_CAP:
            raise rows.wrong(f"has {len(items)} cases; from {least} to {CASES_CAP} are taken")
        return tuple(self.case(row) for row in items)

    def case(self, row: Marked) -> Params:
        table = row.table()
        for key, item in table.items():
            if not _PARAM.match(key):
                raise item.wrong(f"{key!r} can't be a parameter's name")
        case = {key: self.value(item) for key, item in table.items()}
        if not self.ranks and "world_size" in case:
            raise table["world_size"].wrong("is how many GPUs a case has", hint="Say `multi_gpu: true`, or rename it.")
        if self.ranks:
            self.world(row, table)
        if told := mismatch(self.generate, {**case, "rank": 0} if self.ranks else case):
            raise row.wrong(told)
        return case

    def world(self, row: Marked, table: Mapping[str, Marked]) -> None:
        """A case of a problem for several GPUs says how many, and leaves the rank to the judge."""
        if "rank" in table:
            raise table["rank"].wrong("is the judge's to say: each rank has its own")
        if "world_size" not in table:
            raise row.wrong("lacks world_size, which multi_gpu needs in each case")
        table["world_size"].whole(2, RANKS_CAP)

    def value(self, item: Marked) -> Scalar | list[Scalar]:
        match item.value:
            case bool() | int() | float() | str():
                return self.scalar(item)
            case list() if len(item.value) <= LIST_CAP:
                return [self.scalar(inner) for inner in item.value]
            case list():
                raise item.wrong(f"has more than {LIST_CAP} values")
            case _:
                raise item.wrong(f"a number, text, flag or list of them was expected, this is {item.kind}")

    def scalar(self, item: Marked) -> Scalar:
        match item.value:
            case bool() | float():
                return item.value
            case int():
                if abs(item.value) >= 2**63:
                    raise item.wrong(f"{item.raw} has more than 64 bits")
                return item.value
            case str():
                if len(item.value) > TEXT_CAP:
                    raise item.wrong(f"a text of more than {TEXT_CAP:,} characters")
                return item.value
            case _:
                raise item.wrong(f"a number, text or flag was expected, this is {item.kind}")


def mismatch(generate: Function, case: Mapping[str, object]) -> str | None:
    """Why generate_input couldn't be called with this case, or None."""
    if not generate.known:
        return None
    if not generate.any_key and (strange := sorted(set(case) - set(generate.parameters))):
        return f"generate_input takes no {strange[0]} (it takes {', '.join(generate.parameters) or 'nothing'})"
    if missing := [name for name in generate.required if name not in case and name != DEVICE]:
        return f"generate_input needs {missing[0]}, which this case lacks"
    return None


# ------------------------------------------------------------------------------------------------ one-file problems


def _of_one_file(file: Path, *, name: str | None) -> Problem:
    if not file.is_file():
        raise Invalid("isn't a file", file=file)
    here = Marked(file=file, line=1, key="", value=None)
    text = _Folder(base=file.parent, root=file.parent).decoded(file, file.name, here)
    code = parsed_code(text, file, file.name)
    generate = required_function(code, ("generate_input",), {})
    required_function(code, ANSWERS, {})  # the layout of an output is that of the reference's own
    check = required_function(code, ("check_implementation",), {})
    style = one_file_style(code, check)
    if "submission" in code.imports():
        raise Invalid("imports submission: the judge never loads the submission", file=file)
    tests = _literal_cases(code, "TESTS", generate) or (_only_case(code, generate),)
    benchmarks = _literal_cases(code, "BENCHMARKS", generate) or tests
    warnings: list[str] = []
    if generate.known and not generate.any_key and "seed" not in generate.parameters:
        warnings.append(
            f"{file}:{generate.line}: generate_input takes no seed: fresh inputs depend on it using `random`"
        )
    return Problem(
        name=name or problem_name(file.parent.name if file.stem == "reference" else file.stem),
        style="modern" if style == "modern" else "one-file",
        description=code.docstring()[:TEXT_CAP],
        files={"reference.py": text},
        tests=tests,
        benchmarks=benchmarks,
        hidden=_literal_cases(code, "HIDDEN", generate),
        config=_literal_baseline(code, file, text),
        warnings=tuple(warnings),
    )


def _literal_baseline(code: Code, file: Path, text: str) -> dict[str, Any]:
    """BASELINE of a problem in one file: a function of that file, or another file beside it, that is measured beside
    every submission."""
    found = code.literal("BASELINE")
    if found is None:
        return {}
    at = _marked(found[0], file, found[1], "BASELINE")
    if at.text().endswith(".py"):
        beside = _Folder(base=file.parent, root=file.parent).text(at.text(), at)
        return {"baseline": _placed(at, lambda: checked_source(PurePosixPath(at.text()).name, beside.encode())).text}
    if not at.text().isidentifier() or code.function(at.text()) is None:
        raise at.wrong(f"{at.text()!r} is neither a function of this file nor a .py file beside it")
    return {"baseline": f"{text.rstrip()}\n\n\ncustom_kernel = {at.text()}\n"}


def _of_one_compiled_file(file: Path, *, name: str | None) -> Problem:
    if not file.is_file():
        raise Invalid("isn't a file", file=file)
    here = Marked(file=file, line=1, key="", value=None)
    text = _Folder(base=file.parent, root=file.parent).decoded(file, file.name, here)
    kept = f"reference{file.suffix}"
    found = read_reference(kept, {kept: text}, file)
    cases = {key: _commented_cases(text, key, file, found.generate) for key in ("TESTS", "BENCHMARKS", "HIDDEN")}
    needed = [n for n in found.generate.required if n != "seed"]
    if needed and not cases["TESTS"]:
        raise Invalid(
            f"generate_input needs {needed[0]}, and no case says what it is",
            file=file,
            hint=f'List cases in a comment of one line: // TESTS = [{{"{needed[0]}": …}}].',
        )
    only: Params = {"seed": 1} if "seed" in found.generate.required else {}
    tests = cases["TESTS"] or (only,)
    return Problem(
        name=name or problem_name(file.parent.name if file.stem == "reference" else file.stem),
        lang="cu",
        style="one-file" if found.style == "one-file" else "modern",
        files={kept: included_once(text)},
        runner_files=found.shared,
        reference=kept,
        entry="submission.cu",
        tests=tests,
        benchmarks=cases["BENCHMARKS"] or tests,
        hidden=cases["HIDDEN"],
        config=_commented_baseline(text, file, kept),
        build=Build(when="always", adapter=dict(found.adapter)),
        warnings=_told_of_sharing(file, file.name, found) if kept == file.name else (),
    )


def _commented_cases(text: str, key: str, file: Path, generate: Function) -> tuple[Params, ...]:
    found = literal_cases(text, key)
    if found is None:
        return ()
    told, line = found
    try:
        rows = json.loads(told)
    except ValueError:
        raise Invalid("must be a list of tables as in JSON", file=file, line=line, key=key) from None
    return _CaseCheck(generate=generate).cases(_marked(rows, file, line, key), least=1)


def _commented_baseline(text: str, file: Path, kept: str) -> dict[str, Any]:
    """BASELINE of a compiled problem in one file: a function of that file, or another file beside it."""
    found = baseline_of(text)
    if found is None:
        return {}
    at = _marked(found[0], file, found[1], "BASELINE")
    if at.text().endswith(SUBMISSION_SUFFIXES):
        beside = _Folder(base=file.parent, root=file.parent).text(at.text(), at)
        return {"baseline": _placed(at, lambda: checked_source(PurePosixPath(at.text()).name, beside.encode())).text}
    if not takes_data(text, at.text()):
        raise at.wrong(f"{at.text()!r} is neither a function of this file that takes the data nor a .cu file beside it")
    return {"baseline": called_as_submission(at.text(), kept)}


def _only_case(code: Code, generate: Function) -> Params:
    """The one case of a reference without TESTS: no arguments, or a seed alone."""
    if generate.known and (needed := [name for name in generate.required if name != "seed"]):
        raise Invalid(
            f"generate_input needs {needed[0]}, and no case says what it is",
            file=code.file,
            line=generate.line,
            hint=f"Give it a default, or list cases: TESTS = [{{{needed[0]!r}: …}}].",
        )
    return {"seed": 1} if "seed" in generate.parameters else {}


def _literal_cases(code: Code, key: str, generate: Function) -> tuple[Params, ...]:
    found = code.literal(key)
    if found is None:
        return ()
    rows, line = found
    check = _CaseCheck(generate=generate)
    return check.cases(_marked(rows, code.file, line, key), least=1)


def _marked(value: Any, file: Path, line: int, key: str) -> Marked:
    """A Python literal as if it had stood in a yaml."""
    inner: Any = value
    match value:
        case list() | tuple():
            inner = [_marked(item, file, line, f"{key}[{n}]") for n, item in enumerate(value)]
        case dict():
            inner = {str(name): _marked(item, file, line, f"{key}.{name}") for name, item in value.items()}
        case None | bool() | int() | str():
            pass
        case float() if value == value and abs(value) != float("inf"):
            pass
        case _:
            raise Invalid(f"{type(value).__name__} can't be a case's value", file=file, line=line, key=key)
    return Marked(file=file, line=line, key=key, value=inner, raw=str(value)[:200])


# --------------------------------------------------------------------------------------------------- problem sets


def _set_entry(row: Marked, base: Path, root: Path, zone_name: str, usual: datetime | None) -> SetEntry:
    table = row.table()
    at = _wanted(table, "directory", row.file, row)
    directory = (base / at.text()).resolve()
    if not directory.is_relative_to(root):
        raise at.wrong(f"{at.text()} leads out of {root.name}/")
    if not directory.is_dir():
        raise at.wrong(f"there is no directory {at.text()}", hint="Directories are relative to the set's yaml file.")
    named = table.get("name")
    return SetEntry(
        directory=directory,
        name=_placed(named or at, lambda: board_name(named.text() if named else directory.name)),
        deadline=_deadline(table["deadline"], zone_name) if "deadline" in table else usual,
        gpus=_gpus(table),
    )


def _refuse_twins(rows: Sequence[Marked], names: Sequence[str]) -> None:
    for n, name in enumerate(names):
        if name in names[:n]:
            raise rows[n].wrong(f"the board {name} stands twice in the set")


def _deadline(at: Marked | None, zone_name: str) -> datetime | None:
    if at is None or at.value is None or at.value == "":
        return None
    return _placed(at, lambda: parsed_deadline(at.text(), zone_name))


# ------------------------------------------------------------------------------------------------------ small parts


def problem_name(text: str) -> str:
    """A name that a board may have, made from a folder's or a file's."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64] or "problem"


def _placed(at: Marked | None, make: Callable[[], T]) -> T:
    """What `make` gives; its Invalid is raised again with the place in the file."""
    try:
        return make()
    except Invalid as error:
        if at is None:
            raise
        raise at.wrong(error.message, hint=error.hint) from None


def _wanted(table: Mapping[str, Marked], key: str, file: Path, row: Marked | None = None) -> Marked:
    if key in table:
        return table[key]
    if row is not None:
        raise row.wrong(f"the key {key} is missing")
    raise Invalid(f"the key {key} is missing", file=file)


def _gpus(table: Mapping[str, Marked]) -> tuple[str, ...]:
    if "gpus" not in table:
        return ()
    return tuple(_placed(gpu, partial(gpu_name, gpu.text())) for gpu in table["gpus"].items())


def _capped(at: Marked) -> str:
    text = at.text()
    if len(text) > TEXT_CAP:
        raise at.wrong(f"a text of more than {TEXT_CAP:,} characters")
    return text


def _choice(table: Mapping[str, Marked], key: str, default: K, *others: K) -> K:
    return table[key].one_of(default, *others) if key in table else default


def _repository(start: Path) -> Path | None:
    """The repository that this directory lies in."""
    return next((place for place in (start, *start.parents) if (place / ".git").exists()), None)
