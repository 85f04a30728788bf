"""Runs one attempt on a Ray node: claims it at the service, runs the harness, and delivers its sealed result there.

The service sends this along with the harness; see boot.py. Standard library only, except for the cipher. In this order:
  claim    the first process that asks gets the sealed order; every other one ends, having seen nothing of it
  run      the harness under the same supervisor as local attempts, told to refuse below the place's isolation level;
           in containers of the GPU type's image, if it has one: see contained.py
  beat     meanwhile the service is told that it goes on, and says whether it may; a node that isn't heard for its
           lease ends the run itself, so that silence proves that nothing runs any more
  deliver  report, ending and a profile's files, sealed for the service
What is printed lands in Ray's logs, so it names the attempt and nothing else.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from kbslurm.backends.github import runner_program as parcel
from kbslurm.backends.ray import calls, contained, leftovers

FORM = 1
PR_SET_DUMPABLE = 4
CLAIM_S, DELIVER_S, STOPPED_S = 120.0, 900.0, 2.5
PAUSES_S = (0.2, 1.0, 3.0, 10.0)
CALL_S, BEAT_S = 20.0, 5.0
YOUNG_S = 60.0
# What Ray sees of an end. Of two processes for one attempt Ray may know the one that lost, so only this exit code says
# that the run itself is over without a result; NOT_MINE and FAILED are those of a process that never had it.
OVER, UNDELIVERED, NOT_MINE, FAILED = 0, 74, 75, 6
NO_ANSWER = (OSError, http.client.HTTPException)


class Node:
    """This process, as the service knows it."""

    def __init__(self, name: str, place: str, url: str, key: bytes) -> None:
        self.name, self.place, self.url, self.key = name, place, url, key
        self.who = secrets.token_hex(16)
        self.told_to_stop = False
        self._number = 0

    def numbered(self, **told: Any) -> bytes:
        """The body of one call: no other one of this process has its number, so that nobody can repeat it."""
        self._number += 1
        return json.dumps({**told, "number": self._number}).encode()

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        self.told_to_stop = True

    def call(self, verb: str, body: bytes, timeout_s: float = CALL_S) -> tuple[int, bytes]:
        """One call; one of NO_ANSWER if there was none, or not all of it."""
        digest = calls.digest_of(body)
        headers = {
            calls.WHO: self.who,
            calls.SUM: digest,
            calls.MAC: calls.mac(self.key, verb, self.place, self.name, self.who, digest),
            "Content-Type": "application/octet-stream",
            "User-Agent": "kbslurm-node",
        }
        asked = urllib.request.Request(f"{self.url}/nodes/{self.place}/{self.name}/{verb}", body, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(asked, timeout=timeout_s) as answer:  # noqa: S310
                said = answer.read(parcel.ORDER_CAP)
                if answer.length:  # which a read up to a limit leaves unsaid
                    raise http.client.IncompleteRead(said, answer.length)
                return answer.status, said
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(4096)

    def insist(self, verb: str, body: Callable[[], bytes], within_s: float) -> tuple[int, bytes] | None:
        """The same until there is an answer that will stay so. None: there was none in that time."""
        until, tried = time.monotonic() + within_s, 0
        while True:
            with contextlib.suppress(*NO_ANSWER):
                status, said = self.call(verb, body())
                if status < 500 and status not in (408, 429):
                    return status, said
            pause_s = PAUSES_S[min(tried, len(PAUSES_S) - 1)]
            if time.monotonic() + pause_s > until:
                return None
            time.sleep(pause_s)
            tried += 1


def run(name: str, place: str, url: str, key: bytes, kit: str) -> int:
    """All of it; the exit code is for Ray's list of jobs only."""
    node = Node(name, place, url, key)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, node.stop)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # we have the key in memory
    claimed = node.insist("claim", lambda: node.numbered(node=socket.gethostname()), CLAIM_S)
    if claimed is None:
        return _say(f"the service can't be reached at {url}, so {name} isn't started", FAILED)
    status, sealed = claimed
    if status == 403:
        return _say(f"{name} isn't to be started: it was before, or was cancelled", NOT_MINE)
    if status != 200:
        return _say(f"{name} couldn't be claimed: the service answered with status {status}", FAILED)
    try:
        with _place() as base:
            folder = base / name
            came = _judged(node, sealed, folder, Path(kit) / "eval")
            result = _sealed(node, folder, came)
    except OSError as error:
        return _say(f"no folder can be made for {name} on this node: {error}", UNDELIVERED)
    within_s = STOPPED_S if node.told_to_stop else DELIVER_S
    delivered = node.insist("result", lambda: result, within_s)
    if delivered is None or delivered[0] != 200:
        return _say(f"the result of {name} couldn't be delivered", UNDELIVERED)
    return _say(f"{name} is over", OVER)


def _judged(node: Node, sealed: bytes, folder: Path, harness: Path) -> dict[str, Any]:
    """How the harness ended, or why it couldn't be started."""
    try:
        order = _opened(node, sealed, harness)
        _laid_out(folder, order)
        return _supervised(node, folder, order, harness)
    except (parcel.OrderFailed, contained.NoContainer) as error:
        return {"ending": "image", "reason": str(error)}
    except OSError as error:
        return {"ending": "no_report", "reason": f"the harness couldn't be started on this node: {error.strerror}"}


def _opened(node: Node, sealed: bytes, harness: Path) -> dict[str, Any]:
    order: dict[str, Any] = json.loads(parcel.opened(sealed, node.key, node.name, "order", parcel.ORDER_CAP))
    if order["form"] != FORM or order["name"] != node.name:
        raise parcel.OrderFailed("this order is for another attempt, or from another version of kbslurm")
    if parcel.harness_digest(harness) != order["harness"]:
        raise parcel.OrderFailed("the service was updated while this run was starting")
    return order


def _laid_out(folder: Path, order: dict[str, Any]) -> None:
    for made in (folder, folder / "out", folder / "scratch"):
        made.mkdir(mode=0o700)
    parcel.put(folder / "manifest.json", order.pop("manifest").encode(), 0o400)
    parcel.put(folder / "key", bytes.fromhex(order.pop("key")), 0o400)
    parcel.put(folder / "starting", b"", 0o600)


def _supervised(node: Node, folder: Path, order: Mapping[str, Any], harness: Path) -> dict[str, Any]:
    """Run it, and tell the service about it meanwhile."""
    told, host = parcel.supervisors_order(os.environ, folder, order, harness), socket.gethostname()
    inner = contained.program_for(order, os.environ, host, node.place)
    if inner:
        told = contained.order_in_container(
            told, order, inner, env=os.environ, folder=folder, harness=harness, node=host
        )
    parcel.put(folder / "order.json", json.dumps(told).encode(), 0o400)
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from kbslurm.backends.local import supervise;"
        " supervise.prctl(1, 15); raise SystemExit(supervise.main(sys.argv[2], os.open(sys.argv[3], os.O_RDONLY)))"
    )
    argv = [sys.executable, "-I", "-S", "-c", program, str(harness.parent), *_files(folder, "order.json", "starting")]
    leftovers.adopt()
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as supervisor:
        try:
            why = _watched(node, supervisor, folder, order)
        except BaseException:
            supervisor.terminate()
            raise
    found: dict[str, Any] = json.loads(parcel.read_capped(Path(told["exit"]), 65_536) or b"{}")
    if not found:
        leftovers.end(told)
        raise parcel.OrderFailed("the supervisor ended without a result")
    if why and found.get("ending") == "no_report":
        return {**found, "reason": why}
    if inner and found.get("ending") == "timeout" and not (folder / "out" / "heartbeat.json").exists():
        return {**found, "ending": "boot_failure", "reason": f"its container didn't start in time on {host}"}
    with contextlib.suppress(ValueError):
        said = parcel.read_capped(folder / "exit.json", 65_536) if inner else None
        return {**found, "supervisor": json.loads(said or b"")}
    return found


def _watched(node: Node, supervisor: subprocess.Popen[bytes], folder: Path, order: Mapping[str, Any]) -> str:
    """Until it has ended; why it was ended from here, if it was."""
    beat_s, lease_s = float(order["beat_s"]), float(order["lease_s"])
    heard_at = beat_at = time.monotonic()
    why = ""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(0.2)
            return why
        if why:
            continue
        now = time.monotonic()
        if node.told_to_stop:
            why = "its node told it to stop"
        elif now - heard_at > lease_s:
            why = f"its node couldn't reach the service for {lease_s:g} s"
        elif now >= beat_at:
            beat_at = now + beat_s
            with contextlib.suppress(*NO_ANSWER, ValueError):
                told = node.numbered(progress=_progress(folder))
                status, said = node.call("beat", told, min(BEAT_S, beat_s))
                if status == 200:
                    heard_at = now
                if status == 200 and json.loads(said)["go_on"] is not True:
                    parcel.put(folder / "cancelled", b"", 0o600)
                    why = "it was cancelled"
        if why:
            supervisor.terminate()


def _progress(folder: Path) -> dict[str, Any]:
    told = parcel.read_capped(folder / "out" / "heartbeat.json", calls.BEAT_CAP // 2)
    with contextlib.suppress(ValueError, UnicodeDecodeError):
        found = json.loads(told or b"{}")
        if isinstance(found, dict):
            return found
    return {}


def _sealed(node: Node, folder: Path, exit_: Mapping[str, Any]) -> bytes:
    """The result, with as many of a profile's files as there is room for."""
    report = parcel.read_capped(folder / "out" / "report.json", parcel.SEALED_REPORT_CAP)
    came: dict[str, Any] = {
        "form": FORM,
        "name": node.name,
        "node": socket.gethostname(),
        "exit": exit_,
        "report": None if report is None else base64.b64encode(report).decode(),
        "log": (parcel.read_capped(folder / "log", 2 * parcel.LOG_BYTES) or b"")[-parcel.LOG_TAIL :].decode(
            errors="replace"
        ),
        "artifacts": parcel.artifacts_in(folder / "out" / "artifacts"),
    }
    result = parcel.sealed(json.dumps(came).encode(), node.key, node.name, "result")
    if len(result) > calls.RESULT_CAP:
        came["artifacts"] = {}
        result = parcel.sealed(json.dumps(came).encode(), node.key, node.name, "result")
    return result


@contextlib.contextmanager
def _place() -> Any:
    """A folder for the attempt that only this account reaches. What killed processes left there is removed first."""
    above = Path(tempfile.gettempdir()) / f"kbslurm-node-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        above.mkdir(mode=0o700)
    looks = above.lstat()
    if above.is_symlink() or looks.st_uid != os.getuid() or looks.st_mode & 0o077:
        raise OSError(0, f"{above} isn't a folder of this account alone")
    for left in above.iterdir():
        with contextlib.suppress(OSError):
            _remove_if_left(left)
    mine = Path(tempfile.mkdtemp(prefix="of-", dir=above))
    held = os.open(mine, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield mine
    finally:
        with contextlib.suppress(OSError):
            leftovers.remove(mine)
        os.close(held)


def _remove_if_left(folder: Path) -> None:
    """Unless a process holds it, or has just made it and is about to."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if time.time() - os.fstat(held).st_mtime < YOUNG_S:
            return
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leftovers.remove(folder)
    finally:
        os.close(held)


def _files(folder: Path, *names: str) -> list[str]:
    return [str(folder / name) for name in names]


def _say(what: str, code: int) -> int:
    print(f"kbslurm: {what}", flush=True)
    return code
