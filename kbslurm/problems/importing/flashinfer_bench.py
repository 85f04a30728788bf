"""flashinfer-bench: `definitions/**/*.json` and `workloads/**/NAME.jsonl` of a trace set; submissions define `run`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kbslurm.errors import Invalid
from kbslurm.problems.cases import PARAMETER_NAME
from kbslurm.problems.fields import problem_name
from kbslurm.problems.folder import LFS, RECORDED_CAP
from kbslurm.problems.importing.source import Files, Found, json_of, part, task_yml, text_of
from kbslurm_eval.shared import recorded

DTYPES = (
    *("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("int64", "int32", "int16", "int8", "bool"),
)
TESTS, BENCHMARKS = 4, 8  # of a definition's workloads, spread over their sizes
SMALL = 8  # at most, for an axis that varies, where a CPU judges
UNUSED = "no workload of it is in the collection, so sizes and inputs are drawn: offsets, indices and lengths are valid"
# sizes of axes where nothing is recorded; an axis that isn't here has DRAWN
DRAWN = 8
SIZES = {"num_pages": 64, "num_kv_indices": 32, "total_q": 16, "total_kv": 32, "max_seq_len": 128, "seq_len": 4}
# What can be counted from shapes: kinds that need all of their inputs.
WORK = {"gemm": {"flops": "shapes(matmul)", "bytes": "shapes"}, "rmsnorm": {"bytes": "shapes"}}
LOW_BIT = re.compile(r"moe_fp8_block_scale")
OFFSET = re.compile(r"(\w+)\s*==\s*(\w+)\[-1\]")


def found(root: Path) -> Iterator[Found]:
    for file in sorted(root.rglob("definitions/**/*.json")):
        origin = file.relative_to(root).as_posix()
        yield Found(
            name=problem_name(f"flashinfer-{file.stem}"), origin=origin, make=partial(_made, root, file, origin)
        )


def _made(root: Path, file: Path, origin: str) -> Files:
    told = json_of(text_of(root, file), origin)
    definition = checked(told, origin)
    top = next(place for place in file.parents if place.name == "definitions").parent
    workloads, copied, notes = _workloads(root, top, definition, origin)
    drawn = not workloads
    if drawn:
        workloads = [_drawn_case(definition)]
        notes = [*notes, UNUSED]
    small = [_drawn_case(definition)] if drawn else _smaller(workloads, definition)
    sampling = definition["op_type"] == "sampling"
    own: dict[str, Any] = {"wrapper": "wrapper.py", "build_timeout": 600, "memory_mb": 16384}
    if sampling:
        own["modes"] = ["test", "benchmark"]
        notes = [*notes, "how often each token is drawn isn't checked, so it is judged and timed, but not ranked"]
    own |= WORK.get(definition["op_type"], {})
    if small and small != workloads:
        own["sizes"] = {"cpu": {"tests": _seeded(small, 1), "benchmarks": _seeded(small[-1:], 9)}}
    names = ["reference.py", "definition.py", "definition_reference.py", "flashinfer_inputs.py", "wrapper.py"]
    yml = {
        "files": [
            {"name": "submission.py", "source": "@SUBMISSION@"},
            *({"name": name, "source": name} for name in (*names, *copied)),
        ],
        "lang": "py",
        "description": _description(definition, origin, notes),
        "templates": {"Python": "template.py"},
        "tests": _seeded(_spread(workloads, TESTS), 1),
        "benchmarks": _seeded(_spread(workloads, BENCHMARKS), 101),
        "test_timeout": 300,
        "benchmark_timeout": 600,
        "ranked_timeout": 900,
        "ranking_by": "geom",
        "kbslurm": own,
    }
    return {
        "task.yml": task_yml("flashinfer-bench", origin, yml),
        "reference.py": part("flashinfer_reference.py"),
        "flashinfer_inputs.py": part("flashinfer_inputs.py"),
        "wrapper.py": part("flashinfer_wrapper.py"),
        "definition.py": _as_python(definition),
        "definition_reference.py": definition["reference"],
        "template.py": definition["reference"],
        "submissions/accepted/reference.py": definition["reference"],
        **copied,
    }


def checked(told: Any, origin: str) -> dict[str, Any]:
    """The definition in this JSON, or Invalid naming what is wrong with it."""
    if not isinstance(told, dict):
        raise Invalid(f"{origin} isn't a definition")
    for key, kind in (("name", str), ("op_type", str), ("axes", dict), ("inputs", dict), ("outputs", dict),
                      ("reference", str)):  # fmt: skip
        if not isinstance(told.get(key), kind) or not told[key]:
            raise Invalid(f"{origin} has no {key}")
    axes: dict[str, int | None] = {}
    for name, axis in told["axes"].items():
        match axis:
            case {"type": "const", "value": int() as value} if value >= 0:
                axes[name] = value
            case {"type": "var"}:
                axes[name] = None
            case _:
                raise Invalid(f"{origin}: axis {name} is neither constant nor variable")
    tensors = {key: {name: _tensor(name, spec, axes, origin) for name, spec in told[key].items()}
               for key in ("inputs", "outputs")}  # fmt: skip
    try:
        tree = ast.parse(told["reference"])
    except (SyntaxError, ValueError) as error:
        raise Invalid(f"{origin}: its reference isn't Python: {error}") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        raise Invalid(f"{origin}: its reference defines no function run")
    constraints = [one for one in told.get("constraints") or [] if isinstance(one, str)]
    return {
        "name": told["name"],
        "op_type": told["op_type"],
        "description": told.get("description") or "",
        "axes": axes,
        "constraints": constraints,
        "reference": told["reference"],
        **tensors,
    }


def _tensor(name: str, spec: Any, axes: Mapping[str, int | None], origin: str) -> tuple[list[str] | None, str]:
    if not PARAMETER_NAME.match(name):
        raise Invalid(f"{origin}: {name!r} isn't a valid name of a tensor")
    match spec:
        case {"shape": None | list() as shape, "dtype": str() as dtype}:
            pass
        case _:
            raise Invalid(f"{origin}: {name} has no shape and dtype")
    if dtype not in DTYPES:
        raise Invalid(f"{origin}: {name} is {dtype}, which torch tensors here can't be")
    if shape is not None and (unknown := [axis for axis in shape if axis not in axes]):
        raise Invalid(f"{origin}: the shape of {name} has an unknown axis {unknown[0]}")
    return shape, dtype


def _as_python(definition: Mapping[str, Any]) -> str:
    constants = {name: value for name, value in definition["axes"].items() if value is not None}
    lines = [
        f'"""{definition["name"]}: what submissions get and give."""\n',
        f"NAME = {definition['name']!r}",
        f"OP_TYPE = {definition['op_type']!r}",
        f"AXES = {constants!r}  # the constant ones",
        f"CONSTRAINTS = {definition['constraints']!r}",
        f"REQUIRED_MATCHED = {0.95 if LOW_BIT.search(definition['name']) or definition['op_type'] == 'moe' else 1.0}",
        f"INPUTS = {definition['inputs']!r}",
        f"OUTPUTS = {definition['outputs']!r}",
    ]
    return "\n".join(lines) + "\n"


def _description(definition: Mapping[str, Any], origin: str, notes: Sequence[str]) -> str:
    def listed(tensors: Mapping[str, tuple[list[str] | None, str]]) -> str:
        return "".join(
            f"- {name}: {dtype} {'scalar' if shape is None else '[' + ', '.join(shape) + ']'}\n"
            for name, (shape, dtype) in tensors.items()
        )

    return (
        f"{definition['description']}\n\nflashinfer-bench, {origin}. Define `run` with the inputs in this order; it "
        "returns the outputs, or takes them as further parameters and fills them.\n\n"
        f"Inputs:\n{listed(definition['inputs'])}\nOutputs:\n{listed(definition['outputs'])}"
        + "".join(f"\nNote: {note}.\n" for note in notes)
    ).lstrip()


def _workloads(
    root: Path, top: Path, definition: Mapping[str, Any], origin: str
) -> tuple[list[dict[str, Any]], dict[str, Path], list[str]]:
    """A case for each workload that can be taken, smallest first; the files of tensors that they need; and how many
    can't be taken."""
    lines = [
        line
        for file in sorted((top / "workloads").rglob(f"{definition['name']}.jsonl"))
        for line in text_of(root, file).splitlines()
        if line.strip()
    ]
    cases: list[tuple[float, dict[str, Any], dict[str, Path]]] = []
    lacking: list[str] = []
    for line in lines:
        told = json_of(line, f"a workload of {origin}")
        try:
            case, files = _case(root, top, definition, told.get("workload", told) if isinstance(told, dict) else {})
        except Invalid as error:
            lacking.append(error.message)
            continue
        cases.append((_size(definition, case), case, files))
    cases.sort(key=lambda row: row[0])
    taken: list[dict[str, Any]] = []
    copied: dict[str, Path] = {}
    for _, case, files in _spread(cases, max(TESTS, BENCHMARKS)):
        more = {name: place for name, place in files.items() if name not in copied}
        if sum(place.stat().st_size for place in (*copied.values(), *more.values())) > RECORDED_CAP:
            lacking.append("its recorded tensors are larger than a problem's may be")
            continue
        copied |= more
        taken.append(case)
    notes = [f"{len(lacking)} of {len(lines)} workloads can't be taken: {lacking[0]}"] if lacking else []
    return taken, copied, notes


def _case(
    root: Path, top: Path, definition: Mapping[str, Any], workload: Any
) -> tuple[dict[str, Any], dict[str, Path]]:
    match workload:
        case {"axes": dict() as axes, "inputs": dict() as inputs}:
            pass
        case _:
            raise Invalid("a workload has no axes and inputs")
    case: dict[str, Any] = {}
    files: dict[str, Path] = {}
    for name, value in definition["axes"].items():
        if value is None:
            if type(axes.get(name)) is not int:
                raise Invalid(f"a workload doesn't say how long {name} is")
            case[name] = axes[name]
    for name, spec in inputs.items():
        match spec:
            case {"type": "scalar", "value": bool() | int() | float() as value} if math.isfinite(value):
                case[name] = value
            case {"type": "safetensors", "path": str() as path, "tensor_key": str() as key}:
                kept, place = _recorded(root, top, path)
                files[kept] = place
                case[name] = f"{kept}#{key}"
            case {"type": "random"}:
                if name in definition["inputs"] and _needs_meaning(definition, name):
                    raise Invalid(f"{name} is drawn at random, which is no valid input")
            case _:
                raise Invalid(f"the source of {name} isn't known")
    return case, files


def _needs_meaning(definition: Mapping[str, Any], name: str) -> bool:
    return name.endswith(("indptr", "cu_seqlens")) and not any(
        match[2] == name for one in definition["constraints"] if (match := OFFSET.match(one))
    )


def _recorded(root: Path, top: Path, path: str) -> tuple[str, Path]:
    place = (top / path).resolve()
    if not place.is_relative_to(root):
        raise Invalid(f"{path} is outside of the collection")
    if not place.is_file():
        raise Invalid(f"the recorded tensors {path} aren't in the collection")
    with place.open("rb") as stream:
        if stream.read(len(LFS)) == LFS:
            raise Invalid(f"the recorded tensors {path} are a Git LFS pointer; git lfs pull fetches them")
        if place.stat().st_size > recorded.CAP:
            raise Invalid(f"the recorded tensors {path} are larger than {recorded.CAP:,} bytes")
        stream.seek(0)
        try:
            recorded.header(stream.read())
        except recorded.NotRecorded as error:
            raise Invalid(f"the recorded tensors {path}: it {error}") from None
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "_", place.relative_to(root).as_posix())[-100:].lstrip(".-")
    return kept, place


def _size(definition: Mapping[str, Any], case: Mapping[str, Any]) -> float:
    """How many numbers its inputs have."""
    axes = {name: case.get(name, value) for name, value in definition["axes"].items()}
    return sum(math.prod(axes[axis] or 1 for axis in shape or ()) for shape, _ in definition["inputs"].values())


def _spread(rows: Sequence[Any], most: int) -> list[Any]:
    """At most so many of them, from the first to the last."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(n * (len(rows) - 1) / (most - 1))] for n in range(most)]


def _seeded(cases: Sequence[Mapping[str, Any]], first: int) -> list[dict[str, Any]]:
    return [{**case, "seed": first + n} for n, case in enumerate(cases)]


def _smaller(cases: Sequence[dict[str, Any]], definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same with short axes, where nothing is recorded; otherwise the smallest."""
    plain = [case for case in cases if not any(isinstance(value, str) for value in case.values())]
    if not plain:
        return list(cases[:1])
    short = dict(plain[0])
    for name, value in definition["axes"].items():
        if value is None and not definition["constraints"]:
            short[name] = min(short[name], SMALL)
    return [short]


def _drawn_case(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes for a definition without workloads, which satisfy what its constraints say of axes."""
    axes = {name: SIZES.get(name, DRAWN) if value is None else value for name, value in definition["axes"].items()}
    varies = [name for name, value in definition["axes"].items() if value is None]
    for constraint in definition["constraints"]:
        match = re.fullmatch(r"\s*(\w+)\s*==\s*(\w+)\s*([+*-])\s*(\d+)\s*", constraint)
        if match and match[1] in varies and match[2] in axes:
            number = int(match[4])
            axes[match[1]] = {"+": axes[match[2]] + number, "-": axes[match[2]] - number,
                              "*": axes[match[2]] * number}[match[3]]  # fmt: skip
    # lengths of offsets that no constraint ties to the number of sequences
    if "batch_size" in varies and "len_indptr" in varies:
        axes["len_indptr"] = axes["batch_size"] + 1
    return {name: axes[name] for name in varies}
