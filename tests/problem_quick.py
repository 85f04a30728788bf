"""One problem tried without the harness's cage: its judge's part and its starter in one forked process.

The libraries are loaded once, before the fork, so that a collection of hundreds takes minutes. Nothing is isolated.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import select
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

from kbslurm.domain.manifest import manifest_for
from kbslurm.domain.problem import Problem
from tests.problem_row import Row, needed, short

MEMORY_BYTES = 12 << 30


def tried(problem: Problem, file_name: str, source: str, *, name: str, cases: int, limit_s: float) -> Row:
    """Its inputs made and packed, its reference asked and checked, and its starter called, in a child process."""
    with suppress(ImportError):
        import torch  # noqa: F401 - for every child
    began = monotonic()
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        _in_child(there, problem, source, cases)
    os.close(there)
    told = _told(here, child, limit_s)
    os.close(here)
    os.waitpid(child, 0)
    row = Row(
        **{"problem": name, "loads": True, "inputs": "unchecked", "took_s": round(monotonic() - began, 1), **told}
    )
    if not row.default and not row.why_not:
        row = replace(row, why_not=f"took longer than {limit_s:.0f} s, or more memory than there is")
    return replace(row, needs="" if row.default else needed(row.why_not))


def _told(here: int, child: int, limit_s: float) -> dict[str, Any]:
    """The child's last words; it is killed at its limit."""
    until, text = monotonic() + limit_s, b""
    while True:
        ready = select.select([here], [], [], max(0.0, until - monotonic()))[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
            break
        piece = os.read(here, 65536)
        if not piece:
            break
        text += piece
    lines = text.decode(errors="replace").splitlines()
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


def _in_child(there: int, problem: Problem, source: str, cases: int) -> None:
    done: dict[str, Any] = {}

    def tell(**more: Any) -> None:
        done.update(more)
        os.write(there, (json.dumps(done) + "\n").encode())

    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        _try(problem, source, cases, tell)
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" ({os.path.basename(last[0].filename)}, line {last[0].lineno})" if last else ""
        tell(why_not=short(f"{type(error).__name__}: {error}{where}"))
    finally:
        os._exit(0)


def _try(problem: Problem, source: str, cases: int, tell: Any) -> None:
    from kbslurm_eval.judge.reference import Case, Reference
    from kbslurm_eval.runner.importing import import_submission, takes_out
    from kbslurm_eval.shared import bundle, values
    from kbslurm_eval.shared.runner_link import Status

    with open(os.devnull, "w") as nothing, tempfile.TemporaryDirectory(prefix="kbslurm-quick-") as work:
        sys.stdout = sys.stderr = nothing
        manifest = manifest_for(
            problem, token="kb-quick", attempt=1, nonce="0", mode="test", gpu="cpu", source=source,
            secret_seed=secrets.token_hex(16),
        )  # fmt: skip
        reference = Reference(manifest)
        picked = sorted(enumerate(manifest.tests), key=lambda row: _size(row[1]))[:cases]
        prepared = []
        for index, params in picked:
            case = Case(index=index, params=params)
            values.pack(reference.input(case, None))
            tell(inputs="checked")
            prepared.append(reference.prepare(case, None, exact=True))
            reference.verify(prepared[-1])
        tell(reference=True)
        text, own = bundle.parts(source)
        status, said, call = import_submission(
            {
                "entry": manifest.entry, "source": text, "work": work, "gpu": "cpu",
                "files": {**own, **{n: manifest.files[n] for n in manifest.runner_files}},
                "call": manifest.config.get("call", "custom_kernel"), "wrapper": manifest.config.get("wrapper"),
            }
        )  # fmt: skip
        if status != Status.OK:
            raise RuntimeError(f"the starter can't be loaded: {said}")
        for one in prepared:
            out = memoryview(bytearray(one.layout.size))
            data = values.copied(one.packed)
            found = call(data, out=one.layout.places(out)) if takes_out(call)[0] else call(data)
            if manifest.config.get("outputs") != "check":
                one.layout.write(found, out)
                found = one.layout.read(bytearray(out))
            good, why = reference.check(one, found)
            if not good:
                raise ValueError(f"the starter is wrong: {why}")
        tell(default=True, why_not="")


def _size(case: Any) -> float:
    size = 1.0
    for key, value in case.items():
        if isinstance(value, int) and not isinstance(value, bool) and key != "seed":
            size *= max(1, abs(value))
    return size
