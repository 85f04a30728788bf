"""Reads a problem's Python without running it: its functions, their parameters, its imports.

Problem code only ever runs in the judge, in a job. The service reads its syntax tree, so that a missing function or a
misspelt parameter is found when the problem is added, not by the first submission.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kbslurm.errors import Invalid

BYTE_ORDER_MARK = "\ufeff"  # which editors put before a text, and Python and compilers skip in a file
DATA_NAMES = frozenset({"data", "input", "inputs", "input_data", "inp"})
OUTPUT_NAMES = frozenset({"output", "out", "outputs", "submission_output", "submitted", "received", "actual", "got"})
REFERENCE_NAMES = frozenset({"reference", "ref", "expected", "reference_output", "expected_output", "want"})


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function from its `def` line. If it is assigned or imported, its parameters aren't known."""

    name: str
    line: int
    known: bool
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    any_key: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.required + self.optional


@dataclass(frozen=True, kw_only=True)
class Code:
    """One parsed Python file."""

    file: Path
    name: str
    tree: ast.Module

    def function(self, name: str) -> Function | None:
        """What the module's top level binds to this name: a def, an assignment or an import; None if nothing does."""
        found: Function | None = None
        for statement in _top_level(self.tree.body):
            found = _bound(statement, name) or found
        return found

    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def stars(self) -> bool:
        """Whether it imports `*` from somewhere, so that names may come from there."""
        return any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(self.tree))

    def literal(self, name: str) -> tuple[Any, int] | None:
        """A top-level `NAME = <literal>` and its line, or None; Invalid if it isn't a literal."""
        for statement in self.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    pass
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                    pass
                case _:
                    continue
            try:
                return ast.literal_eval(value), statement.lineno
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                raise Invalid(
                    "must be a literal list of tables: it is read, not run",
                    file=self.file,
                    line=statement.lineno,
                    key=name,
                ) from None
        return None

    def imports(self) -> frozenset[str]:
        """The top-level names of all modules that it imports, anywhere in the file."""
        return frozenset(_imported(self.tree))

    def names_from(self, module: str) -> frozenset[str]:
        """The names that it uses from a module, by `from module import x` or as `module.x`."""
        taken: set[str] = set()
        aliases: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.ImportFrom(module=found, names=names) if found == module:
                    taken |= {alias.name for alias in names}
                case ast.Import(names=names):
                    aliases |= {alias.asname or alias.name for alias in names if alias.name == module}
                case _:
                    pass
        for node in ast.walk(self.tree):
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner in aliases:
                    taken.add(attr)
                case _:
                    pass
        return frozenset(taken)

    def imports_at_run_time(self, module: str) -> bool:
        """Whether it imports the module by `__import__` or `importlib`, so that the names it uses can't be known."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=func, args=[ast.Constant(value=str() as named), *_]) if named == module:
                    called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                    if called in {"import_module", "__import__", "run_path", "run_module"}:
                        return True
                case _:
                    pass
        return False


def parsed_code(text: str, file: Path, name: str) -> Code:
    """The file's syntax tree, or Invalid with the line that isn't Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about odd escapes in a problem's strings don't concern us
            return Code(file=file, name=name, tree=ast.parse(text.removeprefix(BYTE_ORDER_MARK), filename=str(file)))
    except SyntaxError as error:
        raise Invalid(f"not valid Python: {error.msg}", file=file, line=error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"not valid Python: {error}", file=file) from None


def required_function(code: Code, names: Sequence[str], others: Mapping[str, Code]) -> Function:
    """The first function with one of these names, or Invalid naming it and the file. `others` resolve `import *`."""
    places = [code, *(others[module] for module in sorted(code.imports()) if module in others and code.stars())]
    for place in places:
        for name in names:
            if found := place.function(name):
                return found
    if code.stars() and not code.imports() <= set(others):
        return Function(name=names[0], line=1, known=False)
    raise Invalid(
        f"the function {names[0]} is missing",
        file=code.file,
        hint="The problem author's guide says what a reference must define.",
    )


def one_file_style(code: Code, check: Function) -> str:
    """`one-file` for check_implementation(output, reference), `modern` for (data, output), going by the parameter
    names.

    A wrong guess would compare the wrong things, so other names are refused.
    """
    names = check.parameters
    if check.known and len(names) == 2:
        first, second = (name.lower() for name in names)
        if first in DATA_NAMES and second not in REFERENCE_NAMES:
            return "modern"
        if first not in DATA_NAMES and (second in REFERENCE_NAMES or first in OUTPUT_NAMES):
            return "one-file"
    raise Invalid(
        "it isn't clear what check_implementation compares",
        file=code.file,
        line=check.line,
        hint="Write `def check_implementation(output, reference)` or `def check_implementation(data, output)`.",
    )


def reachable(start: str, codes: Mapping[str, Code]) -> frozenset[str]:
    """The problem's modules that this one reaches by imports, including itself."""
    found, todo = {start}, [start]
    while todo:
        code = codes.get(todo.pop())
        new = set() if code is None else (code.imports() & set(codes)) - found
        found |= new
        todo += sorted(new)
    return frozenset(found)


def module_name(file_name: str) -> str:
    """`reference` for `reference.py`."""
    return PurePosixPath(file_name).stem


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run on import, including those under `if`, `try` and `with`."""
    for statement in body:
        yield statement
        match statement:
            case ast.If(body=inner, orelse=other):
                yield from _top_level(inner + other)
            case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=final):
                handled = [s for handler in handlers for s in handler.body]
                yield from _top_level(inner + handled + other + final)
            case ast.With(body=inner):
                yield from _top_level(inner)
            case _:
                pass


def _bound(statement: ast.stmt, name: str) -> Function | None:
    match statement:
        case ast.FunctionDef(name=found) if found == name:
            return _of_def(statement)
        case ast.Assign(targets=targets) if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return _of_value(statement.value, name, statement.lineno)
        case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
            return _of_value(value, name, statement.lineno)
        case ast.ImportFrom(names=names) | ast.Import(names=names):
            if any((alias.asname or alias.name) == name for alias in names):
                return Function(name=name, line=statement.lineno, known=False)
        case _:
            pass
    return None


def _of_value(value: ast.expr, name: str, line: int) -> Function:
    if isinstance(value, ast.Lambda):
        return _of_arguments(name, line, value.args)
    return Function(name=name, line=line, known=False)


def _of_def(node: ast.FunctionDef) -> Function:
    if node.decorator_list:
        return Function(name=node.name, line=node.lineno, known=False)
    return _of_arguments(node.name, node.lineno, node.args)


def _of_arguments(name: str, line: int, args: ast.arguments) -> Function:
    placed = [arg.arg for arg in args.posonlyargs + args.args]
    split = len(placed) - len(args.defaults)
    keyed = list(zip([arg.arg for arg in args.kwonlyargs], args.kw_defaults, strict=True))
    return Function(
        name=name,
        line=line,
        known=args.vararg is None,
        required=tuple(placed[:split] + [arg for arg, default in keyed if default is None]),
        optional=tuple(placed[split:] + [arg for arg, default in keyed if default is not None]),
        any_key=args.kwarg is not None,
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str() as module):
                yield module.partition(".")[0]
            case ast.ImportFrom(module=None, names=names):
                yield from (alias.name for alias in names)
            case ast.Call(args=[ast.Constant(value=str() as named), *_], func=func):
                called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if called in {"import_module", "__import__"}:
                    yield named.partition(".")[0]
            case _:
                pass
