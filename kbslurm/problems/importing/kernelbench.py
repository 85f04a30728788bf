"""KernelBench: `level*/*.py`, each with a class Model, get_inputs and get_init_inputs; submissions define ModelNew."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kbslurm.errors import Invalid
from kbslurm.problems.fields import problem_name
from kbslurm.problems.importing.source import Files, Found, part, task_yml, text_of, tree_of

NEEDED = ("Model", "get_inputs", "get_init_inputs")
BATCHES = ("batch_size", "batch", "B")
SMALL_BATCH = 2
EXTENTS = (
    *("depth", "height", "width", "length", "D", "H", "W", "L"),
    *("depth_in", "height_in", "width_in", "image_height", "image_width"),
    *("input_length", "sequence_length", "seq_len"),
)
SMALL_EXTENT = 64
PICTURE = 224  # what networks for pictures halve five times before they pool 7 by 7: less is too little for them
SHRINK, LEAST = 16, 32
OPERATIONS = {
    "matmul": ("matmul", "mm", "bmm"),
    "elementwise": (
        *(
            "relu",
            "sigmoid",
            "tanh",
            "selu",
            "gelu",
            "leaky_relu",
            "softplus",
            "softsign",
            "elu",
            "silu",
            "hardsigmoid",
        ),
        *("hardtanh", "hardswish", "exp", "add", "mul"),
    ),
    "reduction": ("sum", "mean", "argmax", "argmin"),
    "attention": ("scaled_dot_product_attention",),
}
TEMPLATE = """from model import Model


class ModelNew(Model):
    pass
"""


def found(root: Path) -> Iterator[Found]:
    for file in sorted(root.rglob("level[0-9]*/*.py"), key=_order):
        origin = file.relative_to(root).as_posix()
        name = problem_name(f"kernelbench-l{file.parent.name.removeprefix('level')}-{file.stem}")
        yield Found(name=name, origin=origin, make=partial(_made, root, file, origin), is_large=_is_large)


def _order(file: Path) -> tuple[str, int, str]:
    number = re.match(r"\d+", file.name)
    return file.parent.name, int(number[0]) if number else 0, file.name


def _made(root: Path, file: Path, origin: str) -> Files:
    text = text_of(root, file)
    tree = tree_of(text, root, file)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if lacking := [name for name in NEEDED if name not in defined]:
        raise Invalid(f"{origin} defines no {lacking[0]}")
    if any(isinstance(node, ast.Attribute) and node.attr == "from_pretrained" for node in ast.walk(tree)):
        raise Invalid(f"{origin} downloads a model (from_pretrained), and problems are judged without a network")
    case: dict[str, Any] = {"seed": 1}
    told: dict[str, Any] = {
        "files": [
            {"name": "submission.py", "source": "@SUBMISSION@"},
            {"name": "reference.py", "source": "reference.py"},
            {"name": "wrapper.py", "source": "wrapper.py"},
            {"name": "kernelbench_model.py", "source": "kernelbench_model.py"},
            {"name": "model.py", "source": "model.py"},
        ],
        "lang": "py",
        "description": _description(tree, origin),
        "templates": {"Python": "template.py"},
        "tests": [case, {"seed": 2}],
        "benchmarks": [{"seed": 3}],
        "test_timeout": 300,
        "benchmark_timeout": 600,
        "ranked_timeout": 900,
        "ranking_by": "geom",
        "kbslurm": {
            "wrapper": "wrapper.py",
            "baseline": "template.py",
            "build_timeout": 600,
            "memory_mb": 16384,
        },
    }
    if operation := operation_of(tree):
        told["kbslurm"] |= {"flops": f"shapes({operation})", "bytes": "shapes"}
    if small := small_sizes(tree):
        told["kbslurm"]["sizes"] = {
            "cpu": {
                "tests": [{**small, "seed": 1}, {**small, "seed": 2}],
                "benchmarks": [{**small, "seed": 3}],
            }
        }
    return {
        "task.yml": task_yml("KernelBench", origin, told),
        "reference.py": part("kernelbench_reference.py"),
        "wrapper.py": part("kernelbench_wrapper.py"),
        "kernelbench_model.py": part("kernelbench_model.py"),
        "model.py": text,
        "template.py": TEMPLATE,
        "submissions/accepted/plain.py": TEMPLATE,
    }


def _is_large(files: Files) -> bool:
    tree = ast.parse(str(files["model.py"]))
    return not small_sizes(tree) and not is_small(tree)


def _description(tree: ast.Module, origin: str) -> str:
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    said = ast.get_docstring(model) or ""
    return (
        f"{said}\n\nKernelBench, {origin}. Define a class ModelNew that computes what Model in model.py computes, with "
        "the same arguments and parameters. It is made once, with Model's weights; a call of it is what is timed.\n"
    ).lstrip()


def operation_of(tree: ast.Module) -> str | None:
    """The operation that Model's forward is, where it is a single one of its parameters: then a case's work can be
    counted from shapes. What has weights can't be, since these aren't among the inputs."""
    functions = [
        one
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Model"
        for one in node.body
        if isinstance(one, ast.FunctionDef) and one.name == "forward"
    ]
    body = [one for function in functions for one in function.body if not isinstance(one, ast.Expr)]
    match body:
        case [ast.Return(value=ast.BinOp(left=left, op=ast.MatMult(), right=right))]:
            return "matmul" if _is_parameter(left) and _is_parameter(right) else None
        case [ast.Return(value=ast.Call(func=ast.Attribute(attr=name), args=[first, *more], keywords=named))]:
            found = next((kind for kind, names in OPERATIONS.items() if name in names), None)
            if found == "attention" and named:  # a mask, say
                return None
            given = [first] if found == "reduction" else [first, *more]
            return found if all(map(_is_parameter, given)) else None
        case _:
            return None


def _is_parameter(node: ast.expr) -> bool:
    """A name, or its transposition."""
    plain = node.value if isinstance(node, ast.Attribute) and node.attr in ("T", "mT") else node
    return isinstance(plain, ast.Name)


def small_sizes(tree: ast.Module) -> dict[str, int | list[int]]:
    """Values of the file's constants with which it runs on a CPU: a small batch, and small extents where only the
    inputs depend on them; without a batch, smaller sizes of whatever only the inputs depend on. Empty if no constant
    can be changed safely."""
    constants, shapes = _constants(tree), _shapes(tree)
    used, of_weights = (_names_used(tree, name, {*constants, *shapes}) for name in ("get_inputs", "get_init_inputs"))
    of_inputs = used - of_weights
    for name in BATCHES:
        if name in used and name in constants:
            if any(one in shapes and constants[name] == shapes[one][0] for one in of_weights):
                return {}  # a weight that may be as long as the batch
            long = {one: SMALL_EXTENT for one in EXTENTS if one in of_inputs and _is_long(constants.get(one, 0))}
            found = _small_batch(tree, name, of_inputs)
            return {**found, **long} if found else {}
    return {
        name: max(LEAST, constants[name] // SHRINK)
        for name in sorted(of_inputs & set(constants))
        if constants[name] >= LEAST * SHRINK
    }


def _small_batch(tree: ast.Module, name: str, of_inputs: set[str]) -> dict[str, int | list[int]]:
    """The batch alone, or with whatever else has to be as long: where inputs differ in shape, a number that is there
    twice may be one size. Empty if that can't be made small."""
    constants, shapes = _constants(tree), _shapes(tree)
    batch = constants[name]
    same = [
        one
        for one in sorted(of_inputs - {name, *EXTENTS})
        if batch in shapes.get(one, (constants.get(one),)) and name not in _names_behind(tree, one)
    ]
    if not same or _are_alike(tree, name):
        return {name: min(batch, SMALL_BATCH)}
    small = batch // SHRINK
    if small < LEAST:
        return {}
    more = {one: [small if length == batch else length for length in shapes[one]] if one in shapes else small
            for one in same}  # fmt: skip
    return {name: small, **more}


def is_small(tree: ast.Module) -> bool:
    """Whether its inputs are as small as ours anyway: each begins with a small number."""
    first = [call.args[0] for call in _calls_in_inputs(tree) if call.args]
    return bool(first) and all(
        isinstance(one, ast.Constant) and isinstance(one.value, int) and one.value <= SMALL_BATCH for one in first
    )


def _are_alike(tree: ast.Module, name: str) -> bool:
    """Whether all inputs that this constant is a size of have one shape."""
    of_it = [
        "".join(map(ast.dump, call.args))
        for call in _calls_in_inputs(tree)
        if any(isinstance(node, ast.Name) and node.id == name for one in call.args for node in ast.walk(one))
    ]
    return len(set(of_it)) == 1


def _calls_in_inputs(tree: ast.Module) -> list[ast.Call]:
    return [
        node
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name == "get_inputs"
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    ]


def _is_long(extent: int) -> bool:
    return extent > SMALL_EXTENT and extent != PICTURE


def _constants(tree: ast.Module) -> dict[str, int]:
    """The top level's integers, by name; also those that are computed of others."""
    found: dict[str, int] = {}
    for name, value in _assigned(tree):
        if (number := _number(value, found)) is not None:
            found[name] = number
    return found


def _shapes(tree: ast.Module) -> dict[str, tuple[int, ...]]:
    """The top level's tuples of written integers, by name."""
    found = {}
    for name, value in _assigned(tree):
        if isinstance(value, ast.Tuple) and value.elts:
            lengths = [one.value for one in value.elts if isinstance(one, ast.Constant) and isinstance(one.value, int)]
            if len(lengths) == len(value.elts):
                found[name] = tuple(lengths)
    return found


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What the top level's statements assign: `a = 1`, `a = b = 1` and `a, b = 1, 2`."""
    for statement in (node for node in tree.body if isinstance(node, ast.Assign)):
        for target in statement.targets:
            match target, statement.value:
                case ast.Name(id=name), value:
                    yield name, value
                case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
                    yield from ((n.id, v) for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name))


def _number(node: ast.expr, known: dict[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _number(left, known), _number(right, known)
            if a is None or b is None:
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv() if b:
                    return a // b
                case ast.Pow() if 0 <= b < 64:
                    return int(a**b)
                case _:
                    return None
        case _:
            return None


def _names_used(tree: ast.Module, function: str, constants: set[str]) -> set[str]:
    """The constants that this function depends on, also through others of the top level."""
    body = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function), None)
    return _names_in(tree, body) & constants if body is not None else set()


def _names_behind(tree: ast.Module, name: str) -> set[str]:
    """The names that this one is computed of."""
    return {one for known, value in _assigned(tree) if known == name for one in _names_in(tree, value)}


def _names_in(tree: ast.Module, top: ast.AST) -> set[str]:
    assigned = dict(_assigned(tree))
    found: set[str] = set()
    todo = [top]
    while todo:
        for node in ast.walk(todo.pop()):
            if isinstance(node, ast.Name) and node.id in assigned and node.id not in found:
                found.add(node.id)
                todo.append(assigned[node.id])
    return found
