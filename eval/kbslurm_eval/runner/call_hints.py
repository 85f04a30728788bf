"""What a submission's author may have meant: said beside a call that fails before its first line, an answer that has
another form than asked for, a function that isn't there. Inside the runner, for the author; no verdict rests on it."""

from __future__ import annotations

import array
import re
import types
from collections.abc import Sequence

from kbslurm_eval.shared.values import array_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HINT_CAP = 300
FUNCTIONS = 4
_TYPES = re.compile(r"has dtype (\S+); (\S+) was expected")
_SHAPES = re.compile(r"has shape \(([\d, ]*)\); \(([\d, ]*)\) was expected")
_PLACES = re.compile(r"is on (\w+); (\w+) was expected")
_OBJECT = re.compile(
    r"'(tuple|list|dict)' object|can only concatenate (tuple|list)|values to unpack|unsupported operand"
    r"|must be real number|indices must be"
)


def missing(entry: str, wanted: str, module: types.ModuleType) -> str:
    """That the function isn't there, how it is to be defined, and what is there instead."""
    said = f"{entry} defines no function {wanted}"
    other = vars(module).get(wanted)
    if other is not None:
        return f"{said}: {wanted} is a {type(other).__name__} there; expected is def {wanted}(data)"[:HINT_CAP]
    import difflib  # only where they are needed: every runner loads this module
    import inspect

    own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
    if near := difflib.get_close_matches(wanted, own, 1, 0.7):
        return f"{said}; is {near[0]} meant? Expected is def {wanted}(data)"[:HINT_CAP]
    there = f"; it defines {', '.join(own[:FUNCTIONS])}" if own else ""
    return f"{said}; expected is def {wanted}(data){there}"[:HINT_CAP]


def failed(error: BaseException, call: Any, data: Any, *, is_ours: Any) -> str:
    """The hint for an exception of a call with this data, or nothing."""
    try:
        import inspect

        for name, function, given in _parts(call, data):
            if type(error) is TypeError and not _entered(error, is_ours) and not _takes(function, given):
                asked = ", ".join(["data"] if len(given) == 1 else [f"arg{n + 1}" for n in range(len(given))])
                return f"expected is def {name}({asked}), yours is def {name}{inspect.signature(function)}"[:HINT_CAP]
        if isinstance(error, AttributeError | TypeError | ValueError) and _OBJECT.search(str(error)):
            return f"data is {described(data)}"[:HINT_CAP] if type(data) in (tuple, list, dict) else ""
    except BaseException:  # noqa: BLE001 - a submission's own objects may be hostile
        pass
    return ""


def unfit(said: str, found: Any) -> str:
    """The hint for an answer that doesn't fit, by the reason that it was told; or nothing."""
    try:
        if found is None and "NoneType" in said:
            return "custom_kernel returns nothing; is a return missing?"
        if isinstance(found, types.CoroutineType | types.GeneratorType):
            return f"custom_kernel made a {type(found).__name__}; it must be a plain function that returns the answer"
        if told := _TYPES.search(said):
            want = told[2]
            return f"return it as .to({want})" if want.startswith("torch.") else f"return it as .astype('{want}')"
        if told := _SHAPES.search(said):
            is_, want_ = ([int(n) for n in one.replace(" ", "").split(",") if n] for one in (told[1], told[2]))
            if is_ != want_ and sorted(is_) == sorted(want_):
                return "it looks transposed"
            if _product(is_) == _product(want_):
                return f"it has as many numbers; .reshape({', '.join(map(str, want_))})?"
        if told := _PLACES.search(said):
            return f"return it as .to('{told[2]}')"
        if "in C order" in said:
            return "its strides aren't those of a contiguous array; .contiguous() or ascontiguousarray makes a copy"
        if "a tensor was expected" in said or "a numpy array was expected" in said:
            return f"it is {described(found)}"[:HINT_CAP]
    except BaseException:  # noqa: BLE001 - a submission's own objects may be hostile
        pass
    return ""


def described(value: Any, depth: int = 0) -> str:
    """What a value is, in a few words: type, shape, place, and strides where they aren't the usual ones."""
    kind = array_kind(value)
    if kind == "torch":
        strides = "" if value.is_contiguous() else f" with strides {tuple(value.stride())}"
        return f"a {value.dtype} tensor {tuple(value.shape)} on {value.device.type}{strides}"
    if kind == "numpy":
        strides = "" if value.flags.c_contiguous else f" with strides {value.strides}"
        return f"a {value.dtype} array {value.shape}{strides}"
    if isinstance(value, array.array):
        return f"an array of {len(value)} {value.typecode!r}"
    if type(value) in (tuple, list) and depth < 2 and 0 < len(value) <= 6:
        return f"a {type(value).__name__} of {len(value)}: " + ", ".join(described(one, depth + 1) for one in value)
    if type(value) is dict and depth < 2:
        return "a dict: " + ", ".join(f"{k!r}: {described(v, depth + 1)}" for k, v in list(value.items())[:6])
    if type(value) in (tuple, list, dict, str, bytes, bytearray):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _parts(call: Any, data: Any) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """The functions that a call makes, with their names and what they are given."""
    parts: Sequence[tuple[str, Any]] | None = getattr(call, "kb_parts", None)
    if parts is None:
        return [(getattr(call, "__name__", "custom_kernel"), call, (data,))]
    given = [(name, function, data[name]) for name, function in parts]
    return [(name, function, one if type(one) is tuple else (one,)) for name, function, one in given]


def _entered(error: BaseException, is_ours: Any) -> bool:
    """Whether a line of anybody's but the harness's was being run."""
    trace = error.__traceback__
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            return True
        trace = trace.tb_next
    return False


def _takes(function: Any, given: tuple[Any, ...]) -> bool:
    import inspect

    told = inspect.signature(function)
    for named in {}, {"out": None}:  # the place of its answer, if it asks for that
        try:
            told.bind(*given, **named)
        except TypeError:
            continue
        return True
    return False


def _product(sizes: list[int]) -> int:
    whole = 1
    for one in sizes:
        whole *= one
    return whole
