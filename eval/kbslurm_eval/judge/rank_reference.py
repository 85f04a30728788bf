"""The problem's own code for several ranks: one process of the judge's for each, all doing the same at one time.

In the public format `generate_input` makes the input of one rank, and `ref_kernel` and `check_implementation` run in
every rank and speak with the other ranks. So they do here, on the judge's side, in processes that never see a
submission and are told no secret but the seeds of the calls. They are trusted as the problem's reference is.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kbslurm_eval.cage import judge_children, kernel
from kbslurm_eval.judge.check_mark import CHECK_DIED, NATIVE_DEATHS
from kbslurm_eval.judge.check_memory import going_first
from kbslurm_eval.judge.interrupts import INTERRUPTS
from kbslurm_eval.judge.messages import receive, send
from kbslurm_eval.judge.reference import (
    DRAGS_S,
    DRAGS_TIMES,
    NOTHING_TO_COMPARE,
    Case,
    LackedMemory,
    Prepared,
    ProblemTrouble,
    Reference,
    Spent,
    open_cap,
)
from kbslurm_eval.judge.replies import Reply
from kbslurm_eval.shared import claimed_layout, layouts, process_group, values, wire
from kbslurm_eval.shared.program import eval_folder
from kbslurm_eval.shared.runner_link import Status

START_S = 180.0
GRACE_S = 5.0  # how long the other ranks of the reference may take to notice that one has failed
KEPT = 4
_DICE = random.SystemRandom()
_NO_LAYOUT = layouts.Layout(tree=["0"], size=0)


@dataclass(frozen=True, kw_only=True)
class PreparedRanks(Prepared):
    """One call's inputs, one for each rank; of its own it has none."""

    number: int
    parts: tuple[Prepared, ...]
    reference: RankReference

    @property
    def array_bytes(self) -> int:
        """What all ranks have to move at least."""
        return sum(part.array_bytes for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class _Answer:
    told: dict[str, Any]
    blob: bytes


class RankReference:
    """The reference of a problem for `world` ranks. Its processes start with the first call and end with `close`."""

    def __init__(self, manifest: wire.Manifest, world: int) -> None:
        self.world = world
        self._open = manifest.config.get("outputs") == "check"
        self._told = wire.dumps(replace(manifest, source="", secret_seed="", nonce="", tests=[], benchmarks=[],
                                        hidden=[])).encode()  # fmt: skip
        self._processes: list[_RankProcess] = []
        self._count = 0
        self.group = ""
        self.spent = Spent()
        self._usual_check_s = 0.0
        self._start()

    def _start(self) -> None:
        port = free_port()
        self._processes = [_RankProcess(n) for n in range(self.world)]
        deadline = time.monotonic() + START_S
        for process in self._processes:
            process.send({"rank": process.rank, "world": self.world, "port": port}, self._told)
        found = self._answers(self._processes, deadline, "start")
        self.group = str(found[0].told.get("group", ""))

    def usual_check_s(self, case: Case | None = None) -> float:
        """How long all ranks' checks take for the reference's own answers; without end where nobody has seen."""
        return self._usual_check_s or math.inf

    def close(self) -> None:
        """End all its processes."""
        for process in self._processes:
            process.end()
        self._processes = []

    def _asked(
        self, op: str, number: int, blobs: Sequence[bytes | bytearray | memoryview] = (), **more: Any
    ) -> list[_Answer]:
        if not self._processes:
            self._start()
        for process in self._processes:
            process.send({"op": op, "number": number, **more}, blobs[process.rank] if blobs else b"")
        began = time.perf_counter()
        try:
            return self._answers(self._processes, None, op)
        except INTERRUPTS:  # what comes now would be taken for the next answer
            self.close()
            raise
        finally:
            took_s = time.perf_counter() - began
            match op:
                case "prepare":  # with their answers, which are always made
                    self.spent.generation_s += took_s
                case "check" | "verify":
                    self.spent.checks_s += took_s
                    if op == "verify":
                        self._usual_check_s = max(self._usual_check_s, took_s)
                    else:
                        self.spent.dragged_s += max(0.0, took_s - DRAGS_TIMES * self.usual_check_s() - DRAGS_S)
                case _:
                    self.spent.answers_s += took_s

    def _answers(self, processes: Sequence[_RankProcess], deadline: float | None, op: str) -> list[_Answer]:
        """Every rank's answer. When one has failed and the others wait for it for ever, it is its failure that
        counts."""
        found: dict[int, _Answer] = {}
        by_socket = {process.line.fileno(): process for process in processes}
        while len(found) < len(processes):
            waiting = [fd for fd, process in by_socket.items() if process.rank not in found]
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = select.select(waiting, [], [], left)[0]
            if not ready:
                if not found:
                    self.close()
                    raise ProblemTrouble(f"the problem's reference took longer than {START_S:g} s to {op}")
                break
            for fd in ready:
                process = by_socket[fd]
                answer = process.receive()
                if answer is None:
                    how, died, lacked = process.how_it_ended(), process.was_killed_by_itself(), process.was_killed()
                    self.close()
                    if op == "check" and (died or lacked):
                        told = {
                            "good": False,
                            "said": CHECK_DIED,
                            **({"failed": True, "lacked": True} if lacked else {}),
                        }
                        found[process.rank] = _Answer(told=told, blob=b"")
                        return [found.get(n, _Answer(told={}, blob=b"")) for n in range(self.world)]
                    raise ProblemTrouble(f"rank {process.rank} of the problem's reference ended ({how})")
                found[process.rank] = answer
                if _is_bad(answer):
                    deadline = min(deadline or float("inf"), time.monotonic() + GRACE_S)
        if len(found) < len(processes):  # the rest hang in a collective and are useless now
            self.close()
        for rank in sorted(found):
            if trouble := found[rank].told.get("trouble"):
                raise (LackedMemory if found[rank].told.get("lacked") else ProblemTrouble)(f"{trouble} (rank {rank})")
        return [found.get(process.rank, _Answer(told={}, blob=b"")) for process in processes]

    # ----------------------------------------------------------------------- what a Reference does, for all ranks

    def prepare(self, case: Case, seed: int | None, *, exact: bool = True) -> PreparedRanks:
        """Every rank's input, packed, and the layout of its output. The reference's answers are always made: ranks
        that speak with each other can't do without one of them."""
        self._count += 1
        params = {k: list(v) if isinstance(v, list) else v for k, v in case.params.items()}
        found = self._asked("prepare", self._count, params=params, index=case.index, seed=seed)
        parts = tuple(
            Prepared(case=case, packed=a.blob, layout=layouts.layout_from(a.told["layout"]), expected=None, exact=True)
            for a in found
        )
        return PreparedRanks(
            case=case, packed=b"", layout=_NO_LAYOUT, expected=None, exact=True, number=self._count, parts=parts,
            reference=self, seed=seed,
        )  # fmt: skip

    def verify(self, prepared: Prepared) -> None:
        """ProblemTrouble unless the reference's answers pass its own check in every rank."""
        assert isinstance(prepared, PreparedRanks)
        found = self._asked("verify", prepared.number)
        if not any(a.told["has_check"] for a in found) and all(p.layout == _NO_LAYOUT for p in prepared.parts):
            raise ProblemTrouble(NOTHING_TO_COMPARE)

    def answer_again(self, prepared: Prepared) -> None:
        """Run the reference again on these inputs."""
        self._asked("answer", _number(prepared))

    def nothings(self, prepared: PreparedRanks) -> list[bytes]:
        """What a null call carries to each rank: the arrays of its input."""
        return [a.blob for a in self._asked("nothing", prepared.number, [part.packed for part in prepared.parts])]

    def granted(self, prepared: PreparedRanks, replies: Sequence[Reply]) -> list[layouts.Layout | None]:
        """For each rank, the layout of an output that isn't of the reference's, where the check is to decide."""
        if not self._open:
            return [None] * self.world
        return [
            self._granted(part, reply.text) if reply.status in (Status.WRONG_SHAPE, Status.WRONG_TYPE) else None
            for part, reply in zip(prepared.parts, replies, strict=True)
        ]

    def _granted(self, part: Prepared, claim: str) -> layouts.Layout | None:
        if part.layout != claimed_layout.ANY:
            return claimed_layout.granted(claim, part.layout)
        device = "cuda" if self.group == process_group.ON_GPUS else "cpu"  # which every rank of the judge's has then
        return claimed_layout.granted(claim, part.layout, cap=open_cap(part.packed), device=device)

    def misfits(self, prepared: PreparedRanks, outputs: Sequence[bytes | bytearray | memoryview]) -> list[str]:
        """For each rank, why its bytes aren't a valid output; empty if they are."""
        laid = [part.layout.text() for part in prepared.parts]
        return [str(a.told["misfit"]) for a in self._asked("read", prepared.number, outputs, layouts=laid)]

    def check(self, prepared: PreparedRanks) -> list[tuple[bool, str]]:
        """Whether the outputs that `misfits` was given are right, rank by rank. A rank that waits in vain for one
        whose check has failed counts as failed, too."""
        found = self._asked("check", prepared.number)
        if failed := [a.told for a in found if a.told.get("failed")]:
            self._look_for_fault(prepared, lacked=any(told["lacked"] for told in failed))
        return [(bool(a.told.get("good", False)), str(a.told.get("said", ""))) for a in found]

    def _look_for_fault(self, prepared: PreparedRanks, *, lacked: bool) -> None:
        """As a `Reference` does, in all ranks together: one alone would wait for the others for ever."""
        try:
            # where some waited for the failed one in vain, none is left that knows these inputs
            self.verify(prepared if self._processes else self.prepare(prepared.case, prepared.seed))
        except LackedMemory:
            if lacked:
                raise


def _number(prepared: Prepared) -> int:
    assert isinstance(prepared, PreparedRanks)
    return prepared.number


def _is_bad(answer: _Answer) -> bool:
    return bool(answer.told.get("trouble")) or answer.told.get("good") is False


PORTS = "/proc/sys/net/ipv4/ip_local_port_range"
PORTS_BELOW, PORTS_LEAST, PORTS_TRIED = 12_000, 1024, 100


def free_port() -> int:
    """A free loopback port, of those that the kernel gives to nobody where there are any: any program's connection
    could have another one by the time the first rank listens there."""
    lowest = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        lowest = int(Path(PORTS).read_text(encoding="ascii").split()[0])
    ports = range(max(PORTS_LEAST, lowest - PORTS_BELOW), lowest)
    for port in (*_DICE.sample(ports, min(PORTS_TRIED, len(ports))), 0):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
            asked.bind((process_group.HOST, port))
            return int(asked.getsockname()[1])
    raise OSError("no loopback port is free")


class _RankProcess:
    """The judge's half of one rank of the reference."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.line, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-I", "-B", eval_folder(), "--reference-rank", str(theirs.fileno())]
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd="/"
            )
        judge_children.own_process(self._process.pid)

    def send(self, told: dict[str, Any], blob: bytes | bytearray | memoryview) -> None:
        """One message. A process that has ended is noticed by its answer."""
        with contextlib.suppress(OSError):
            send(self.line, told, blob)

    def receive(self) -> _Answer | None:
        """Its answer; None if it has ended."""
        try:
            told, blob = receive(self.line)
        except (OSError, EOFError):
            return None
        return _Answer(told=told, blob=blob)

    def how_it_ended(self) -> str:
        """In words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        code = self._process.returncode
        return "no answer" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"

    def was_killed_by_itself(self) -> bool:
        """Whether code that it ran brought it down."""
        return self._process.returncode is not None and -self._process.returncode in NATIVE_DEATHS

    def was_killed(self) -> bool:
        """Whether the kernel, or somebody else, ended it: for want of memory, say."""
        return self._process.returncode == -signal.SIGKILL

    def end(self) -> None:
        """End it and wait for it."""
        self.line.close()
        self._process.kill()
        self._process.wait()
        judge_children.disown_process(self._process.pid)


# ------------------------------------------------------------------------------------------- one rank's own process


def serve_rank(fd: int) -> int:
    """The program of `--reference-rank`: serves one rank of the reference until the judge disconnects."""
    with contextlib.suppress(OSError):
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.hide_judge()
    line = socket.socket(fileno=fd)
    told, blob = receive(line)
    rank, world = int(told["rank"]), int(told["world"])
    os.environ.update(process_group.environment(rank, world, int(told["port"])), GLOO_SOCKET_IFNAME="lo")
    try:
        part = _OneRank(wire.read_manifest(blob), rank, world)
        group = process_group.join_group(rank=rank, world=world) if "torch" in sys.modules else ""
    except ProblemTrouble as trouble:
        send(line, {"trouble": str(trouble)}, b"")
        return 1
    except BaseException as error:  # noqa: BLE001 - of whatever library; it is told, not thrown
        said = f"the reference's ranks can't form a process group: {type(error).__name__}: {error}"
        send(line, {"trouble": said[:1000]}, b"")
        return 1
    send(line, {"group": group}, b"")
    while True:
        try:
            told, blob = receive(line)
        except (OSError, EOFError):
            return 0
        try:
            answer, out = part.done(told, blob)
        except ProblemTrouble as trouble:
            answer, out = {"trouble": str(trouble), "lacked": isinstance(trouble, LackedMemory)}, b""
        send(line, answer, out)


class _OwnReference(Reference):
    """The reference in one rank. What takes all ranks it doesn't do while it checks: the others are at theirs, or have
    done with them."""

    _failed: Mapping[str, bool] = MappingProxyType({})  # the check: an output or the problem is to blame
    _checks = False

    def checked(self, prepared: Prepared, output: Any) -> dict[str, Any]:
        """What there is to say of this rank's output."""
        self._failed, self._checks = {}, True
        try:
            with going_first():
                good, said = self.check(prepared, output)
        finally:
            self._checks = False
        return {"good": good, "said": said, **self._failed}

    def _look_for_fault(self, prepared: Prepared, *, lacked: bool, last: bool) -> None:
        self._memory_of_checks.look_anew()
        self._failed = {"failed": True, "lacked": lacked}

    def _answered(self, data: Any) -> Any:
        return None if self._checks else super()._answered(data)  # asked then only where its answer is nothing


class _OneRank:
    """What one rank keeps of the latest calls."""

    def __init__(self, manifest: wire.Manifest, rank: int, world: int) -> None:
        self._rank, self._reference = rank, _OwnReference(manifest, keeps=False, checkers=world)
        self._calls: OrderedDict[int, Prepared] = OrderedDict()
        self._output: Any = None

    def done(self, told: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        """One step that all ranks perform together."""
        if told["op"] == "prepare":
            return self._prepared(told)
        if told["op"] == "nothing":
            return {}, values.pack(values.copied(blob), arrays_only=True)
        prepared = self._calls[told["number"]]
        match told["op"]:
            case "verify":
                self._reference.verify(prepared)
                return {"has_check": self._reference.has_check}, b""
            case "answer":
                self._reference.answer(prepared)
            case "read":
                try:
                    self._output = layouts.layout_from(told["layouts"][self._rank]).read(blob)
                except layouts.Misfit as misfit:
                    return {"misfit": str(misfit) or "no output"}, b""
                return {"misfit": ""}, b""
            case "check":
                output, self._output = self._output, None
                return self._reference.checked(prepared, output), b""
            case _:
                raise ProblemTrouble(f"the judge asked for {told['op']!r}, which isn't a known request")
        return {}, b""

    def _prepared(self, told: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        case = Case(index=told["index"], params={**told["params"], "rank": self._rank})
        prepared = self._reference.prepare(case, told["seed"], exact=True)
        self._calls[told["number"]] = prepared
        while len(self._calls) > KEPT:
            self._calls.popitem(last=False)
        return {"layout": prepared.layout.text()}, bytes(prepared.packed)
