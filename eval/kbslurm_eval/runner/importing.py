"""A submission in Python, imported from its text."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types

from kbslurm_eval.runner import call_hints, error_text, forked
from kbslurm_eval.runner.answer_places import has_places
from kbslurm_eval.runner.error_text import one_line
from kbslurm_eval.shared import recorded
from kbslurm_eval.shared.runner_link import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WRITTEN_AT = 1_000_000_000
BYTE_ORDER_MARK = "\ufeff"  # which Python skips in a file, and in a text takes for a letter


def placed(told: dict[str, Any]) -> tuple[str, str]:
    """The submission's file, written with the problem's beside it, and the folder that all are in."""
    work = _workplace(told.get("work"))
    for name, text in told["files"].items():
        _written(os.path.join(work, name), text)
    path = os.path.join(work, str(told.get("entry_path", told["entry"])))
    _written(path, told["source"])
    return path, work


def import_submission(told: dict[str, Any]) -> tuple[int, str, Any]:
    entry = str(told["entry"])
    path, work = placed(told)
    place = str(told.get("entry_path", entry))
    error_text.knows(entry, told["source"], work)
    # a file in a folder finds what lies beside it, by its name and as of a package
    sys.path[:0] = [work] if place == entry else [os.path.dirname(path), work]
    os.chdir(work)
    name = os.path.splitext(place)[0].replace("/", ".")
    _suit(str(told["gpu"]), [told["source"], *(t for n, t in told["files"].items() if not n.endswith(recorded.SUFFIX))])
    try:
        compile(told["source"].removeprefix(BYTE_ORDER_MARK), entry, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return Status.SYNTAX, one_line(error, entry), None
    except (RecursionError, MemoryError) as error:  # an expression of thousands of terms
        return Status.LOAD_RAISED, one_line(error, entry), None
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = sys.modules[os.path.splitext(entry)[0]] = module
        spec.loader.exec_module(module)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the submission's
        if (ended := _ended(error)) is not None:
            return ended
        said = one_line(error)
        if type(error) is ModuleNotFoundError and error.name == "triton":
            said = f"triton isn't installed where this is judged, and {entry} imports it"
        return Status.LOAD_RAISED, said, None
    if told.get("wrapper"):
        return _wrapped(str(told["wrapper"]), module, entry)
    names = [told["call"]] if isinstance(told["call"], str) else list(told["call"])
    for wanted in names:
        if not callable(getattr(module, wanted, None)):
            return Status.NO_ENTRY, call_hints.missing(entry, wanted, module), None
    if isinstance(told["call"], str):
        return Status.OK, "", getattr(module, names[0])
    return Status.OK, "", _each([(wanted, getattr(module, wanted)) for wanted in names])


def _ended(error: BaseException) -> tuple[int, str, Any] | None:
    """What is told of an import that ended for want of memory, or ended its process; a child's ends that child."""
    forked.end_if_child(error)
    if isinstance(error, MemoryError):
        return Status.MEMORY, "MemoryError", None
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return Status.ENDED, f"{type(error).__name__}: {error}", None
    return None


def _suit(gpu: str, texts: list[str]) -> None:
    """Where a CPU stands in for a GPU: what these texts need for that. They are parsed here and not by the judge, whose
    time is nobody's: a megabyte of the right text takes a minute and a half."""
    from kbslurm_eval.device import cuda_on_cpu

    if cuda_on_cpu.wanted(gpu, texts):
        cuda_on_cpu.install()
    if cuda_on_cpu.interpreted(gpu, texts):
        cuda_on_cpu.interpret()


def _wrapped(wrapper: str, submission: Any, entry: str) -> tuple[int, str, Any]:
    """What the problem's wrapper makes of the submission: a submission that has the shape of another collection's."""
    try:
        return Status.OK, "", importlib.import_module(wrapper.removesuffix(".py")).entry_point(submission)
    except BaseException as error:  # noqa: BLE001 - it has run code of the submission
        if (ended := _ended(error)) is not None:
            return ended
        if isinstance(error, LookupError):
            return Status.NO_ENTRY, f"{entry} {error.args[0] if error.args else 'lacks what is called'}", None
        return Status.LOAD_RAISED, one_line(error), None


def takes_out(call: Any, args: int = 1) -> tuple[bool, bool]:
    """Whether the submission asks for the place where its answer is read, by a parameter `out` that isn't among so many
    arguments, and whether it can do without."""
    # as most are; the module for all others takes long to import
    if type(call) is types.FunctionType and not vars(call):
        code, kept = call.__code__, len(call.__defaults__ or ())
        named = code.co_varnames[: code.co_argcount]
        if "out" in named:
            at = named.index("out")
            takes = at >= max(args, code.co_posonlyargcount)
            return takes, takes and at >= len(named) - kept
        by_name = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        return "out" in by_name, "out" in (call.__kwdefaults__ or {})
    import inspect

    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError, AttributeError):  # the last where a file of the submission's has this module's name
        return False, False
    found = parameters.get("out")
    if found is None or found.kind not in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY):
        return False, False
    is_data = found.kind == found.POSITIONAL_OR_KEYWORD and list(parameters).index("out") < args
    return not is_data, not is_data and found.default is not found.empty


def _each(functions: list[tuple[str, Any]]) -> Any:
    """Several entry points as one call: each with its own part of the data, a tuple as its arguments, and its own part
    of the places, if it asks for that."""
    asked: dict[tuple[str, int], tuple[bool, bool]] = {}  # how many arguments it has is seen when it is called

    def call(data: dict[str, Any], out: Any) -> dict[str, Any]:
        answers = {}
        for name, function in functions:
            part = data[name]
            args = part if type(part) is tuple else (part,)
            key = name, len(args)
            takes, is_optional = asked.get(key) or asked.setdefault(key, takes_out(function, len(args)))
            given = out.get(name) if takes and type(out) is dict else None
            # without arrays there is no place, and a default of its own holds
            if takes and not (is_optional and not has_places(given)):
                answers[name] = function(*args, out=given)
            else:
                answers[name] = function(*args)
        return answers

    def without_out(data: dict[str, Any]) -> dict[str, Any]:
        return call(data, None)

    taken: Any = call if any(takes_out(function, 0)[0] for _, function in functions) else without_out
    taken.kb_parts = functions
    return taken


def _workplace(given: str | None) -> str:
    """A fresh folder: of the cage's own file system, or the one that the judge made for this launch and removes
    after it."""
    if given is not None:
        return given
    work = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"work{os.environ.get('RANK', '')}")
    try:
        os.mkdir(work, 0o700)
    except FileExistsError:  # a container that keeps its /tmp
        import tempfile

        return tempfile.mkdtemp()
    return work


def _written(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(recorded.unpacked(text) if path.endswith(recorded.SUFFIX) else text.encode())
    os.utime(path, (WRITTEN_AT, WRITTEN_AT))  # what was built of it before must not look older
