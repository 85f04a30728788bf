"""The state of a site's nodes, for `kbslurm status`: by text commands, or by pyslurm in a separate process.

pyslurm is bound to one Slurm release, exits its process if there is no configuration, and changes library loading for
the whole process: the daemon never imports it. The helper (`pyslurm_helper.py`) is run by the interpreter that the site
names, speaks JSON lines, and is killed if it doesn't answer.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from kbslurm.backends.slurm.commands import Commands
from kbslurm.domain.site import Fleet, FleetNode, Reservation, Site
from kbslurm.errors import BackendTrouble

NODE_FIELDS = "NodeList:80,Partition:80,StateLong:40,Gres:400,GresUsed:400,Reason:120"
WIDTHS = (80, 80, 40, 400, 400, 120)
HELPER = Path(__file__).with_name("pyslurm_helper.py")
# No `-I`: an interpreter may be a wrapper that sets PYTHONPATH. Ours never reaches it, since its environment is clean.
FLAGS = ("-s",)
ANSWER_S = 15.0
FLEET_QUERIES = 3  # of the controller, by the helper: nodes, partitions, reservations
VERSION_QUERIES = 1  # some releases of pyslurm load the controller's configuration for it
LINE_CAP = 64_000_000
_GRES = re.compile(r"gpu(?::(?P<type>[A-Za-z_][\w.-]*|\d[\w.-]*[A-Za-z_][\w.-]*))?:(?P<count>\d+)(?:\([^)]*\))?")


class FleetReader(Protocol):
    """Reads the state of the nodes. Stateless."""

    def read(self) -> Fleet:
        """The fleet now, or BackendTrouble."""
        ...


def gpus_in(gres: str) -> dict[str, int]:
    """GPUs by type from Slurm's notation: `gpu:h100:4(S:0-1)`, `gpu:2`, `gpu:1g.10gb:2(IDX:0),gpu:a100:1`, `(null)`."""
    found: dict[str, int] = defaultdict(int)
    for match in _GRES.finditer(gres):
        found[match["type"] or "gpu"] += int(match["count"])
    return dict(found)


@dataclass(frozen=True, kw_only=True)
class TextFleet:
    """The primary reader: sinfo and scontrol as text, the same since Slurm 20.11. `why`: why it isn't pyslurm, if the
    site names one."""

    commands: Commands
    why: str = ""

    def read(self) -> Fleet:
        """Two calls: sinfo, scontrol show reservation."""
        nodes = self._asked("sinfo", ["-h", "-a", "-N", "-O", NODE_FIELDS])
        reserved = self._asked("scontrol", ["show", "reservation", "--oneliner"])
        return Fleet(nodes=nodes_in(nodes), reservations=reservations_in(reserved), reader="text", reader_why=self.why)

    def version(self) -> str:
        """Like `24.11.5`."""
        found = re.search(r"(\d+\.\d+\.\d+)", self._asked("sinfo", ["-V"]))
        return found[1] if found else ""

    def _asked(self, tool: str, arguments: Sequence[str]) -> str:
        answer = self.commands.run(tool, arguments)
        if answer.complaint:
            raise BackendTrouble(self.commands.site.name, f"{tool}: {answer.complaint}")
        return answer.out


def state_word(state: str) -> str:
    """One word for `idle`, `IDLE+DRAIN`, `drained*`, `mixed-`: sinfo and the library use different notations."""
    words = re.sub(r"[*~#!%$@^-]+$", "", state.strip()).lower().split("+")
    if "drain" in words:
        return "draining" if {"allocated", "mixed", "completing"} & set(words) else "drained"
    if words[0] in ("down", "drained", "draining", "drng"):
        return words[0]
    for flag in ("maint", "fail", "reserved", "completing", "planned"):
        if flag in words[1:]:
            return flag
    return words[0]


def nodes_in(text: str) -> tuple[FleetNode, ...]:
    """The nodes in sinfo's columns; a node in several partitions appears once, with all of them."""
    partitions: dict[str, list[str]] = {}
    rows: dict[str, tuple[str, str, str, str]] = {}
    for line in text.splitlines():
        fields, at = [], 0
        for width in WIDTHS:
            fields.append(line[at : at + width].strip())
            at += width
        name, partition, state, gres, used, reason = fields
        if name and state:
            partitions.setdefault(name, []).append(partition.rstrip("*"))
            rows[name] = (state, gres, used, reason)
    return tuple(
        FleetNode(
            name=name,
            partitions=tuple(sorted(set(partitions[name]))),
            state=state_word(state),
            gpus=gpus_in(gres),
            gpus_used={kind: count for kind, count in gpus_in(used).items() if count},
            reason="" if reason in ("none", "(null)") else reason,
        )
        for name, (state, gres, used, reason) in sorted(rows.items())
    )


def reservations_in(text: str) -> tuple[Reservation, ...]:
    """The reservations in scontrol's lines."""
    found = []
    for line in text.splitlines():
        told = dict(re.findall(r"(\w+)=(\S*)", line))
        if name := told.get("ReservationName"):
            found.append(
                Reservation(
                    name=name,
                    state=told.get("State", ""),
                    nodes=told.get("Nodes", ""),
                    starts_at_s=_epoch(told.get("StartTime", "")),
                    ends_at_s=_epoch(told.get("EndTime", "")),
                    flags=tuple(sorted(flag for flag in told.get("Flags", "").split(",") if flag)),
                )
            )
    return tuple(sorted(found, key=lambda one: one.name))


def _epoch(text: str) -> int | None:
    if text.isdigit():
        return int(text)
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text):
        return int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    return None


@dataclass(frozen=True, kw_only=True)
class PyslurmFleet:
    """The second reader: queries a helper process. Any failure of it is BackendTrouble. `charge` is told before so many
    queries are made of the scheduler."""

    site: str
    argv: tuple[str, ...]
    conf: str = ""
    answer_s: float = ANSWER_S
    charge: Callable[[int], None] = lambda _: None

    def read(self) -> Fleet:
        """Start the helper, send one query, stop it."""
        self.charge(FLEET_QUERIES)
        told = self._asked({"ask": "fleet"})
        try:
            return Fleet(
                nodes=tuple(
                    FleetNode(
                        name=str(node["name"]),
                        partitions=tuple(sorted(map(str, node["partitions"]))),
                        state=state_word(str(node["state"])),
                        gpus=_counts(node["gpus"]),
                        gpus_used={kind: count for kind, count in _counts(node["gpus_used"]).items() if count},
                        reason=str(node["reason"]),
                    )
                    for node in sorted(told["nodes"], key=lambda one: str(one["name"]))
                ),
                reservations=tuple(
                    Reservation(
                        name=str(one["name"]),
                        state=str(one["state"]),
                        nodes=str(one["nodes"]),
                        starts_at_s=one["starts_at_s"],
                        ends_at_s=one["ends_at_s"],
                        flags=tuple(sorted(map(str, one["flags"]))),
                    )
                    for one in sorted(told["reservations"], key=lambda one: str(one["name"]))
                ),
                version=str(told["slurm"]),
                reader="pyslurm",
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BackendTrouble(self.site, f"the pyslurm helper's answer isn't valid: {error!r}") from None

    def version(self) -> tuple[str, str]:
        """(pyslurm's version, Slurm's version that it was built for)."""
        self.charge(VERSION_QUERIES)
        told = self._asked({"ask": "version"})
        return str(told.get("pyslurm", "")), str(told.get("slurm", ""))

    def _asked(self, question: Mapping[str, str]) -> dict[str, Any]:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "PYSLURM_DISABLE_AUTO_INIT": "1"}
        if self.conf:
            environment["SLURM_CONF"] = self.conf
        with tempfile.TemporaryFile() as complaint:
            line = self._line(question, environment, complaint)
            last = _last_words(complaint)
        try:
            told = json.loads(line)
        except ValueError:
            ended = "the pyslurm helper ended without an answer"
            raise BackendTrouble(self.site, f"{ended}: {last}" if last else ended) from None
        if not isinstance(told, dict) or "error" in told:
            why = told.get("error") if isinstance(told, dict) else "no object"
            raise BackendTrouble(self.site, f"the pyslurm helper: {why}")
        return told

    def _line(self, question: Mapping[str, str], environment: Mapping[str, str], complaint: IO[bytes]) -> bytes:
        try:
            helper = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaint,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise BackendTrouble(self.site, f"{self.argv[0]} can't be run: {error.strerror}") from None
        with helper:
            try:
                assert helper.stdin is not None
                with suppress(BrokenPipeError):  # it ended before it read: what it said is still there
                    helper.stdin.write(json.dumps({**question, "conf": self.conf}).encode() + b"\n")
                    helper.stdin.close()
                return _line_of(helper, self.answer_s)
            finally:
                helper.kill()


def _last_words(complaint: IO[bytes]) -> str:
    """The last line that a helper wrote to its standard error."""
    complaint.seek(max(0, complaint.seek(0, os.SEEK_END) - 4096))
    lines = complaint.read().decode(errors="replace").strip().splitlines()
    return "".join(letter for letter in lines[-1] if letter.isprintable())[:300] if lines else ""


def _line_of(helper: subprocess.Popen[bytes], answer_s: float) -> bytes:
    assert helper.stdout is not None
    found, until = bytearray(), time.monotonic() + answer_s
    with selectors.DefaultSelector() as ready:
        ready.register(helper.stdout, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and len(found) < LINE_CAP:
            if not ready.select(left):
                break
            part = os.read(helper.stdout.fileno(), 1 << 16)
            found += part
            if not part or b"\n" in part:
                break
    return bytes(found).partition(b"\n")[0]


def _counts(told: Mapping[str, Any]) -> dict[str, int]:
    return {str(kind): int(count) for kind, count in told.items()}


def fleet_reader(site: Site, commands: Commands) -> TextFleet | PyslurmFleet:
    """The reader for this site: pyslurm if the site names an interpreter with a matching pyslurm, else text, which then
    knows why."""
    text = TextFleet(commands=commands)
    if not site.slurm.pyslurm_python:
        return text
    helper = PyslurmFleet(
        site=site.name,
        argv=(site.slurm.pyslurm_python, *FLAGS, str(HELPER)),
        conf=site.slurm.conf,
        charge=partial(commands.charge, "pyslurm"),
    )
    try:
        built_for, _ = helper.version()
    except BackendTrouble as error:
        return replace(text, why=error.message)
    try:
        here = text.version()
    except BackendTrouble as error:
        return replace(text, why=f"Slurm's version isn't known ({error.message})")
    if _release(built_for) != _release(here):
        meant = ".".join(_release(built_for))
        return replace(text, why=f"pyslurm {built_for} is for Slurm {meant}, and this is {here}")
    return helper


def _release(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
