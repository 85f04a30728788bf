"""What somebody does to another's kernel to hide where it is from. Each keeps what the kernel computes, roughly: these
texts are compared, never run."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Mapping

_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_DECLARED = re.compile(
    r"\b(?:void|int|long|float|bool|half|unsigned|size_t|auto|float4|int4|dim3|Tensor|char)[\s*&]+"
    r"(?:__restrict__\s+)?([A-Za-z_]\w*)"
)
_SIZE = re.compile(r"(?<![\w.])(?:8|16|32|64|128|256|512|1024|4096)(?![\w.])")
_CUDA = re.compile(r'(r"""\n)(.*?)(\n""")', re.DOTALL)
_KEPT = {"run", "custom_kernel", "self", "main"}


def is_cuda(source: str) -> bool:
    """Whether the kernel is CUDA in a string."""
    return "load_inline" in source


def in_cuda(source: str, change: Callable[[str], str]) -> str:
    """The source with its CUDA changed."""
    return _CUDA.sub(lambda found: found[1] + change(found[2]) + found[3], source, count=1)


def renamed(source: str, seed: int) -> str:
    """Every name of its own gets another, and types become others where that doesn't matter."""
    rng = random.Random(seed)
    own = set(_DECLARED.findall(source)) | set(re.findall(r"#define (\w+)", source))
    if not is_cuda(source):
        tree = ast.parse(source)
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name):
                    own.add(name)
                case ast.arg(arg=name):
                    own.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    own.add(name)
                case _:
                    pass
    names = {
        name: "".join(rng.choices("abcdefghijklmnop", k=3)) + rng.choice(["_idx", "Buf", "_v", "2", "Tmp", ""])
        for name in sorted(own - _KEPT)
    }
    return _NAME.sub(lambda found: names.get(found[0], found[0]), source)


def commented(source: str, seed: int) -> str:
    """Comments, blank lines and other indentation."""
    rng = random.Random(seed)
    words = [
        "bounds",
        "load the tile",
        "my own idea",
        "coalesced",
        "tuned by hand",
        "see lecture 4",
        "accumulate",
        "fast path",
    ]
    lines, cuda = [], False
    for line in source.splitlines():
        if is_cuda(source) and '"""' in line:
            cuda = not cuda
        opened = line.rstrip().endswith(("(", ",", "{", "[")) or '"""' in line
        if rng.random() < 0.4 and not opened and line.strip():
            line += f"  {'//' if cuda else '#'} {rng.choice(words)}"
        lines.append(line)
        if cuda and rng.random() < 0.3:
            lines += ["", f"    /* {rng.choice(words)}", "     */"]
    return "\n".join(lines) + "\n"


def _functions(text: str) -> list[str]:
    """A CUDA text's top-level parts: each ends with a closing brace at a line's start, or a blank line."""
    return [part for part in re.split(r"\n\n+(?=\S)", text) if part.strip()]


def reordered(source: str, seed: int) -> str:
    """Functions in another order, and neighbouring declarations that don't need each other swapped."""
    rng = random.Random(seed)

    def cuda(text: str) -> str:
        head, *parts = _functions(text)
        rng.shuffle(parts)
        lines = "\n\n".join([head, *parts]).split("\n")
        n = 0
        while n + 1 < len(lines):
            one, two = (re.match(r"\s+(?:const )?[\w:]+ \*?(\w+) = [^{}]*;$", line) for line in lines[n : n + 2])
            if one and two and one[1] not in _NAME.findall(lines[n + 1]):
                lines[n : n + 2] = [lines[n + 1], lines[n]]
                n += 1
            n += 1
        return "\n".join(lines)

    if is_cuda(source):
        return in_cuda(source, cuda)
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    rest = [node for node in tree.body if node not in imports]
    rng.shuffle(rest)
    for node in rest:
        if isinstance(node, ast.FunctionDef):
            body = node.body
            for n in range(0, len(body) - 1, 2):
                one, two = body[n : n + 2]
                if isinstance(one, ast.Assign) and isinstance(two, ast.Assign):
                    made = {name.id for name in ast.walk(one.targets[0]) if isinstance(name, ast.Name)}
                    used = {name.id for name in ast.walk(two) if isinstance(name, ast.Name)}
                    if not made & used:
                        body[n : n + 2] = [two, one]
    return ast.unparse(ast.Module(body=[*imports, *rest], type_ignores=[])) + "\n"


class _Parts(ast.NodeTransformer):
    """Gives the first operand, argument or returned value of a statement a name of its own."""

    def __init__(self) -> None:
        self.count = 0

    def _named(self, value: ast.expr) -> tuple[ast.stmt, ast.expr]:
        self.count += 1
        name = f"part{self.count}"
        first = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value)
        return ast.fix_missing_locations(first), ast.Name(id=name, ctx=ast.Load())

    def visit_Return(self, node: ast.Return) -> list[ast.stmt] | ast.Return:
        if node.value is None or isinstance(node.value, ast.Name):
            return node
        first, node.value = self._named(node.value)
        return [first, node]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt] | ast.Assign:
        if isinstance(node.value, ast.BinOp) and not isinstance(node.value.left, ast.Name | ast.Constant):
            first, node.value.left = self._named(node.value.left)
            return [first, node]
        return node


def split(source: str, seed: int) -> str:
    """Statements in two, and the kernel's last lines in a function of their own."""
    rng = random.Random(seed)

    def cuda(text: str) -> str:
        count = 0

        def parted(found: re.Match[str]) -> str:
            nonlocal count
            count += 1
            indent, target, sign, value = found.groups()
            if rng.random() < 0.3:
                return found[0]
            inner = f"\n{indent}    "
            return f"{indent}{{{inner}auto piece{count} = {value};{inner}{target} {sign} piece{count};\n{indent}}}"

        text = re.sub(r"(?m)^( +)([\w\[\]. +*]+?) (\+?=) ([^=;{}]{12,});$", parted, text)
        found = re.search(r"(?ms)^__global__.*?^\}", text)
        if found is None:
            return text
        lines = found[0].split("\n")
        tail = next((n for n in range(len(lines) - 4, 3, -1) if re.match(r"    (?:for|if) ", lines[n])), None)
        if tail is None:
            return text
        helper = "__device__ void finish(float* out, int n, int m) {\n" + "\n".join(lines[tail:-1]) + "\n}\n\n"
        kernel = "\n".join([*lines[:tail], "    finish(out, n, m);", "}"])
        return text.replace(found[0], helper + kernel)

    if is_cuda(source):
        return in_cuda(source, cuda)
    tree = _Parts().visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def retiled(source: str, seed: int) -> str:
    """Other sizes, several items for each thread, unrolled loops."""
    rng = random.Random(seed)
    source = _SIZE.sub(lambda found: str(int(found[0]) * rng.choice((2, 4))), source)

    def cuda(text: str) -> str:
        text = re.sub(
            r"blockIdx\.x \* (\w+(?:\.x)?) \+ threadIdx\.x", r"(blockIdx.x * ITEMS + item) * \1 + threadIdx.x", text
        )
        text = re.sub(r"(?m)^( +)for \(", r"\1#pragma unroll 4\n\1for (", text)
        return re.sub(r"(?m)^( +)__syncthreads\(\);", r"\1if (ITEMS > 1) __syncthreads();", text)

    if is_cuda(source):
        return in_cuda(source, cuda)
    source = re.sub(r"tl\.arange\(0, (\w+)\)", r"tl.arange(0, \1 * 2)", source)
    source = re.sub(r"tl\.program_id\((?:axis=)?(\d)\)", r"(tl.program_id(\1) + tl.num_programs(\1) * item)", source)
    return re.sub(r"for (\w+) in range\(0, (\w+), (\w+)\)", r"for \1 in tl.range(0, \2, \3 * 2, num_stages=3)", source)


def both(*ways: Callable[[str, int], str]) -> Callable[[str, int], str]:
    """One after the other."""

    def done(source: str, seed: int) -> str:
        for way in ways:
            source = way(source, seed)
        return source

    return done


WAYS: Mapping[str, Callable[[str, int], str]] = {
    "renamed": renamed,
    "commented": commented,
    "reordered": reordered,
    "split": split,
    "retiled": retiled,
    "renamed and commented": both(renamed, commented),
    "renamed and reordered": both(reordered, renamed),
    "renamed and split": both(split, renamed),
    "renamed and retiled": both(retiled, renamed),
    "all but split": both(reordered, retiled, renamed, commented),
    "all": both(reordered, split, retiled, renamed, commented),
}
