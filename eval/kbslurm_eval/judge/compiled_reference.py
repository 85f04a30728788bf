"""A reference in C++ in a process of its own, with the judge at the other end of a socket.

What a submission answered is an input of the problem's check, and code that was compiled may take a number of it for a
place in memory. In the judge's process that would be the process with the seed, the key and the report; here it costs
this process, and the answer is wrong. It is told the inputs of one call after the other and nothing else, and it can be
left alone: the judge goes on when its time is over, whatever the compiled code does.
"""

from __future__ import annotations

import contextlib
import inspect
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from kbslurm_eval.cage import judge_children, kernel
from kbslurm_eval.judge import reference_library
from kbslurm_eval.judge.check_memory import CheckMemory, going_first
from kbslurm_eval.judge.messages import receive, send
from kbslurm_eval.shared import values
from kbslurm_eval.shared.program import eval_folder

GRACE_S = 5.0
OWN = ("generate", "answer", "check")


def reference_module(library: bytes, name: str, adapter: Mapping[str, Any]) -> ModuleType:
    """The problem's three functions, from its compiled library, as a module of Python's; and `close`."""
    process = _ReferenceProcess(library, [str(param) for _, param in adapter["generate"]])
    made = ModuleType(name)
    made.__dict__.update(
        generate_input=process.generate(),
        ref_kernel=process.answer,
        check_implementation=process.check,
        close=process.close,
    )
    return made


class _ReferenceProcess:
    """The judge's half. The process starts with the first call, and again if it has ended."""

    def __init__(self, library: bytes, names: list[str]) -> None:
        self._library, self._names = library, names
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def generate(self) -> Callable[..., Any]:
        """generate_input, with the parameters that the C++ one has."""

        def generate_input(**params: Any) -> Any:
            return self._asked({"op": "generate", "params": params}, b"")[1]

        kinds = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in self._names]
        generate_input.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]
        return generate_input

    def answer(self, data: list[Any]) -> Any:
        """The reference's own answer."""
        return self._asked({"op": "answer"}, values.pack(data))[1]

    def check(self, first: list[Any], second: list[Any]) -> tuple[bool, str]:
        """check_implementation, with its parameters in either order. A process whose check refused an answer, or failed
        on it, isn't asked anything else: it may have written by numbers of that answer wherever they led it."""
        try:
            told, _ = self._asked({"op": "check"}, values.pack([first, second]))
        except reference_library.CompiledTrouble:
            self.close()
            raise
        if not told.get("good"):
            self.close()
        return bool(told.get("good")), str(told.get("said", ""))

    def _asked(self, told: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], Any]:
        if self._line is None:
            self._start()
        assert self._line is not None
        try:
            send(self._line, told, blob)
            answer, out = receive(self._line)
        except (OSError, EOFError):
            raise reference_library.CompiledTrouble(f"its process ended ({self._end()})") from None
        except BaseException:  # the judge's time is over: what comes now would be taken for the next answer
            self.close()
            raise
        if trouble := answer.get("trouble"):
            raise reference_library.CompiledTrouble(str(trouble))
        return answer, values.copied(out) if out else None

    def _start(self) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-I", "-B", eval_folder(), "--reference-library", str(theirs.fileno())]
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd="/"
            )
        judge_children.own_process(self._process.pid)
        with contextlib.suppress(OSError):  # its end is noticed when the answer doesn't come
            send(self._line, {"names": self._names}, self._library)

    def _end(self) -> str:
        """How it ended, in words. It is gone afterwards."""
        if self._process is None:
            return "no answer"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        code = self._process.returncode
        self.close()
        return "no answer" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"

    def close(self) -> None:
        """End it and wait for it."""
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            judge_children.disown_process(self._process.pid)
        self._line = self._process = None


# ------------------------------------------------------------------------------------------------- the process itself


def serve(fd: int) -> int:
    """The program of `--reference-library`: serves the compiled functions until the judge disconnects."""
    with contextlib.suppress(OSError):
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.hide_judge()
    memory = CheckMemory()
    line = socket.socket(fileno=fd)
    told, library = receive(line)
    code = reference_library.ReferenceLibrary(library, [str(name) for name in told["names"]])
    while True:
        try:
            told, blob = receive(line)
        except (OSError, EOFError):
            return 0
        try:
            with _bounded(memory) if told["op"] == "check" else contextlib.nullcontext():
                answer, out = _done(code, told, blob)
        except Exception as error:  # noqa: BLE001 - of the problem's code, brought to it by whatever came; it is told
            is_ours = isinstance(error, reference_library.CompiledTrouble)
            answer, out = {"trouble": str(error) if is_ours else f"{type(error).__name__}: {error}"[:1000]}, b""
        send(line, answer, out)


@contextlib.contextmanager
def _bounded(memory: CheckMemory) -> Iterator[None]:
    """A check may allocate by an answer: no more than is left. Where the judge isn't root, that limit is all."""
    with going_first(), memory.bounded():
        yield


def _done(code: reference_library.ReferenceLibrary, told: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
    match told["op"]:
        case "generate":
            return {}, values.pack(code.generate(told["params"]))
        case "answer":
            return {}, values.pack(code.answer(values.copied(blob)))
        case _:
            good, said = code.check(*values.copied(blob))
            return {"good": good, "said": said}, b""
