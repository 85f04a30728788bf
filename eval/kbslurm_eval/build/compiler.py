"""Inside the builder: compilers are called, and what they leave is put into one archive.

No secret is here and no network; whatever goes wrong is told in one short text, the compiler's own words go to the log.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import Any

from kbslurm_eval.shared.runner_link import Status

OUTPUT_CAP = 65_536
KEPT_SOURCES = "sources"  # beside the library, of a submission that is profiled
FIRST_ERRORS = 3
# Compute capabilities by the names that GPU types have; the longest name that fits counts.
_CAPABILITY = {
    "T4": "75", "V100": "70", "A100": "80", "A30": "80", "A10": "86", "A40": "86", "A6000": "86", "RTX3090": "86",
    "L4": "89", "L40": "89", "RTX4090": "89", "RTX5000": "89", "RTX6000": "89", "H100": "90a", "H200": "90a",
    "GH200": "90a", "B100": "100a", "B200": "100a", "GB200": "100a", "B300": "103a", "RTX5090": "120a",
}  # fmt: skip
_GPUS = tuple(f"nvidia{n}" for n in range(64))
_DEVICE_CODE = re.compile(r"__global__|__device__|<<<|\bcub::|\bthrust::|cutlass/|\bcooperative_groups\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WARM_UP = re.compile(r"\bkb_warm_up\b")
_ERROR = re.compile(r"\b(?:error(?! detected in the compilation)|undefined reference|undefined symbol)\b")
_AROUND = re.compile(r"kb_unit\.cu(?:[:(][\d:,]+\)?)?:?\s*(?:(?:fatal )?error:\s*)?")
# what a linker says names our own unit, and the line that it speaks of only where there is debug information
_LINKING = re.compile(r"^\S*(?:ld|\.[a-z]+):.*?(?=undefined (?:reference|symbol))")
_LINKED = re.compile(r"collect2: error|\S*ld: \S+: in function")
# As the compilers and linkers say it of themselves: from the start of a line, behind nothing but their names. Lines
# that they quote, and what a source has them say (`#error`, static assertions), come behind a place or indented.
_NO_MEMORY = re.compile(
    r"""^(?:[^\s:()]+:[ ])*
        (?:(?:\w+[ ])?(?:internal[ ]compiler[ ]error|(?:fatal|catastrophic)[ ]error|error|fatal)\s*:[ ])?
        (?:Killed$|Killed[ ]signal[ ]terminated[ ]program|Killed[ ]\(program
          |\S+[ ]terminated[ ]with[ ]signal[ ]9\b|'[^']+'[ ]died[ ]due[ ]to[ ]signal[ ]9\b
          |unable[ ]to[ ]execute[ ]command:[ ]Killed
          |(?:virtual[ ]|final[ ]link[ ]failed:[ ])?memory[ ]exhausted
          |(?:LLVM[ ]ERROR:[ ])?out[ ]of[ ]memory|memory[ ]allocation[ ]failure
          |terminate[ ]called[ ]after[ ]throwing[ ]an[ ]instance[ ]of[ ]'std::bad_alloc')""",
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_NUMBERED = re.compile(r"\s*\d+ \|(.*)")
_CARET = re.compile(r"\s*[\^~]+\s*$")
_NVCC_ONLY = re.compile(
    r"--?(use_fast_math|expt-|extended-lambda|gencode|arch|threads|lineinfo|rdc|ptxas|maxrregcount|fmad|ftz|prec-|diag"
    r"|extra-device|split-compile|t\b|forward-unknown|device)|-Xptxas|-Xnvlink|-Xfatbin|-lcu|-lnv"
)


def compiled(told: dict[str, Any], cache: str) -> tuple[int, str]:
    """Compile one library as the recipe says; a status of the link and a text."""
    os.makedirs(cache, exist_ok=True)
    work = os.path.join(os.path.dirname(cache), f"{os.path.basename(cache)}.work")
    os.makedirs(work, exist_ok=True)
    for name, text in {**told["files"], "kbslurm.h": told["header"], "kb_unit.cu": told["unit"]}.items():
        _written(os.path.join(work, name), text)
    if told.get("keep_sources"):
        for name, text in told["files"].items():
            _written(os.path.join(cache, KEPT_SOURCES, name), text)
    text = _COMMENT.sub("", "\n".join(told["files"].values()))
    on_device = _DEVICE_CODE.search(text) is not None
    compiler = _compiler(on_device)
    for_processors = compiler is None and on_device and told["gpu"].lower() == "cpu"
    if for_processors:
        # What looks like device code may stand in a string. If it is some, g++ says so, and not that a machine is at
        # fault which is to have no device: its runs are measured again.
        compiler = _compiler(device=False)
    if compiler is None:
        return Status.NO_COMPILER, _missing(on_device)
    library = os.path.join(cache, told["library"])
    argv = _argv(compiler, told, work, library)
    code, said, why_not = 1, "", ""
    if _WARM_UP.search(text):
        code, said = _ran([*argv, "-DKB_WARM_UP"], work)
        why_not = excerpt(said)
    if code != 0:
        code, said = _ran(argv, work)
        if code == 0 and why_not:  # there may be no such function, or one of its own that takes something else
            print(f"kb_warm_up isn't called, since it can't be called as the kernel is: {why_not}", flush=True)
    print(said, flush=True)
    if code != 0 or not os.path.isfile(library):
        if code == -9 or ran_out_of_memory(said):
            return Status.MEMORY, "the compiler ran out of memory"
        why = excerpt(said, told["entry"], told.get("expected", ""))
        if for_processors:
            why = f"{_missing(device=True)}: {why}"
        return Status.NOT_BUILT, why or f"{os.path.basename(compiler)} ended with {code}"
    return Status.OK, ""


def ran_out_of_memory(said: str) -> bool:
    """Whether a compiler says that there wasn't enough memory for it."""
    return _NO_MEMORY.search(said) is not None


def excerpt(said: str, entry: str = "", expected: str = "") -> str:
    """The first errors in a compiler's output, each with the line that it is about. Those in the code around a
    submission (`entry`) only say that it isn't as it is called: `expected` says how that is."""
    lines = [_LINKING.sub("", line) for line in said.splitlines() if not _LINKED.match(line)]
    errors = [n for n, line in enumerate(lines) if _ERROR.search(line)]
    own = [n for n in errors if not _AROUND.match(lines[n].strip())]
    if expected and errors and not own:
        why = _AROUND.sub("", lines[errors[0]].strip())
        return f"{entry} doesn't define what is called: {why}; expected is {expected}"
    told = [lines[n].strip() + _quoted(lines, n) for n in (own or errors)[:FIRST_ERRORS]]
    return "; ".join(told or [line.strip() for line in lines[-FIRST_ERRORS:]])


def _quoted(lines: list[str], error: int) -> str:
    """The source line below an error, as compilers show it: with its number, or with a caret below it."""
    below = lines[error + 1 : error + 3]
    if below and (numbered := _NUMBERED.match(below[0])):
        return f", in `{' '.join(numbered[1].split())}`"
    if len(below) == 2 and _CARET.match(below[1]):
        return f", in `{' '.join(below[0].split())}`"
    return ""


def find(name: str) -> str | None:
    """A compiler's path: on PATH, in the toolkit's folder, or in one of this Python's wheels."""
    path = os.environ.get("PATH", "")
    homes = [os.environ.get(n, "") for n in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")] + ["/usr/local/cuda", "/opt/rocm"]
    more = [os.path.join(home, "bin") for home in homes if home]
    for root in sys.path:
        more += [os.path.join(root, "nvidia", kind, "bin") for kind in ("cu13", "cuda_nvcc")]
    return shutil.which(name, path=os.pathsep.join([path, *more]))


def _compiler(device: bool) -> str | None:
    """nvcc or hipcc if there is a device or device code; otherwise g++, so that host code runs anywhere."""
    gpu = _is_there("nvidiactl", "kfd", *_GPUS)
    names = ("nvcc", "hipcc") if device else ("nvcc", "hipcc", "g++", "c++") if gpu else ("g++", "c++", "nvcc")
    return next((path for name in names if (path := find(name))), None)


def _is_there(*devices: str) -> bool:
    """Whether one of these exists, by name: a fenced builder can't list devices."""
    return any(os.path.exists(f"/dev/{name}") for name in devices)


def _missing(device: bool) -> str:
    return "there is no nvcc or hipcc here, and this is device code" if device else "there is no g++ here"


def _argv(compiler: str, told: dict[str, Any], work: str, library: str) -> list[str]:
    name = os.path.basename(compiler)
    flags = [str(f) for f in told["flags"]]
    nvidia, amd = name == "nvcc", name == "hipcc"
    argv = [compiler, "-shared", *([] if any("-std=" in f for f in flags) else ["-std=c++17"])]
    argv += [] if any(f.startswith("-O") for f in flags) else ["-O3"]
    if nvidia:
        argv += ["-Xcompiler", "-fPIC,-fdiagnostics-color=never", *_target(told["gpu"], flags), *_lines(flags), *flags]
    elif amd:
        argv += ["-fPIC", "-fno-color-diagnostics", *_host(flags)]
    else:
        # what is defined nowhere is an error here, with its line, and not when it is loaded
        argv += ["-fPIC", "-fdiagnostics-color=never", "-Wl,-z,defs", *_host(flags)]
        shim = os.path.join(work, "kb_host_cuda")
        for header in ("cuda_runtime.h", "cuda_runtime_api.h"):
            _written(os.path.join(shim, header), told["host_cuda"])
        argv += ["-I", shim, "-include", os.path.join(shim, "cuda_runtime.h")]
    argv += [f"-D{d}" for d in told["defines"]] + ["-I", "."]
    for folder in told["include_dirs"]:
        argv += ["-I", folder]
    argv += ["-x", "cu" if nvidia else "hip" if amd else "c++", "kb_unit.cu", *told["sources"]]
    return [*argv, "-o", library]


def _lines(flags: list[str]) -> list[str]:
    """Line numbers for profiles, in every mode: they change no instruction, and what is timed is what is profiled."""
    own = ("-lineinfo", "--generate-line-info", "-G", "--device-debug")
    return [] if any(flag in own for flag in flags) else ["-lineinfo"]


def _target(gpu: str, flags: list[str]) -> list[str]:
    if any(f.startswith(("-arch", "--gpu-architecture", "-gencode", "--generate-code")) for f in flags):
        return []
    compact = gpu.upper().replace("-", "").replace("_", "").replace(" ", "")
    fits = [name for name in _CAPABILITY if compact.startswith(name)]
    if fits:
        return [f"-arch=sm_{_CAPABILITY[max(fits, key=len)]}"]
    return ["-arch=native"] if _is_there(*_GPUS) else []


def _host(flags: list[str]) -> list[str]:
    """Those of nvcc's flags that a host compiler understands."""
    kept: list[str] = []
    passed = skipped = False
    for flag in flags:
        if skipped:
            skipped = False
        elif passed:
            kept += flag.split(",")
            passed = False
        elif flag in ("-Xcompiler", "--compiler-options"):
            passed = True
        elif flag in ("-Xptxas", "-Xnvlink", "-gencode", "-arch", "--generate-code", "--gpu-architecture"):
            skipped = True
        elif not _NVCC_ONLY.match(flag):
            kept.append(flag)
    return kept


def _ran(argv: list[str], work: str) -> tuple[int, str]:
    kept = bytearray()
    environment = {**os.environ, "LC_ALL": "C"}
    with subprocess.Popen(
        argv, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as process:
        assert process.stdout is not None
        while part := process.stdout.read1(65_536):  # type: ignore[attr-defined]
            kept += part[: max(0, OUTPUT_CAP - len(kept))]
    said = kept.decode("utf-8", "replace").replace(f"{work}/", "")
    return process.returncode, said


def _written(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
