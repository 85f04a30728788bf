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
EXTENTS = ("depth", "height", "width", "length", "D", "H", "W", "L")
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
        yield Found(name=name, origin=origin, make=partial(_made, root, file, origin))


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


def small_sizes(tree: ast.Module) -> dict[str, int]:
    """Values of the file's constants with which it runs on a CPU: a small batch, and small extents where only the
    inputs depend on them; without a batch, smaller sizes of whatever only the inputs depend on. Empty if no constant
    can be changed safely."""
    constants = _constants(tree)
    of_inputs = _names_used(tree, "get_inputs", constants) - _names_used(tree, "get_init_inputs", constants)
    for name in BATCHES:
        if name in of_inputs:
            # a number that stands there twice may be the same size twice
            if _written(tree, constants[name]) > 1:
                return {}
            long = {one: SMALL_EXTENT for one in EXTENTS if one in of_inputs and _is_long(constants[one])}
            return {name: min(constants[name], SMALL_BATCH), **long}
    return {
        name: max(LEAST, constants[name] // SHRINK) for name in sorted(of_inputs) if constants[name] >= LEAST * SHRINK
    }


def _is_long(extent: int) -> bool:
    return extent > SMALL_EXTENT and extent != PICTURE


def _written(tree: ast.Module, number: int) -> int:
    """How often this number is written in the file's constants."""
    statements = (node for node in tree.body if isinstance(node, ast.Assign))
    return sum(
        isinstance(node, ast.Constant) and node.value == number for one in statements for node in ast.walk(one.value)
    )


def _constants(tree: ast.Module) -> dict[str, int]:
    """The top level's integers, by name; also those that are computed of others."""
    found: dict[str, int] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            value = _number(statement.value, found)
            for target in statement.targets:
                if isinstance(target, ast.Name) and value is not None:
                    found[target.id] = value
    return found


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


def _names_used(tree: ast.Module, function: str, constants: dict[str, int]) -> set[str]:
    """The constants that this function depends on, also through others of the top level."""
    body = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function), None)
    assigned = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    found: set[str] = set()
    todo: list[ast.AST] = [body] if body is not None else []
    while todo:
        for node in ast.walk(todo.pop()):
            if isinstance(node, ast.Name) and node.id in assigned and node.id not in found:
                found.add(node.id)
                todo.append(assigned[node.id])
    return found & set(constants)
