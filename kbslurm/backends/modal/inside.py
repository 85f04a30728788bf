"""Runs in Modal's container with that image's Python: turns one payload into one envelope. Standard library only.

`judge(payload)` is the whole body of each deployed function. It writes the harness's input to disk (manifest, key),
runs the harness as a child, like every other place, and returns its result. It never inspects the report, and returns
compressed JSON: nothing of ours is pickled. As a program it reads the payload from standard input and writes the
envelope to standard output.

What is larger than Modal takes along with a call goes through a store of blobs, by HTTP, which a container without a
network can't reach. So both ways are compressed, and what is still too large is left behind: files first.
"""

# ruff: noqa: PTH100, PTH102, PTH103, PTH118, PTH120, PTH123, PTH208, S108
from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PAYLOAD_VERSION = ENVELOPE_VERSION = 2
SEALED_CAP = 16_000_000
ARTIFACT_CAP, ARTIFACTS_CAP = 8 << 20, 12
TAIL_CAP = 65_536
KILLING_S = 20.0
HANDED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
PR_SET_DUMPABLE = 4


def judge(payload: bytes) -> bytes:
    """Run the harness once for this payload. Always returns an envelope."""
    told = json.loads(zlib.decompress(payload))
    if told["version"] != PAYLOAD_VERSION:
        return _envelope("image", "version")
    if time.time() > told["start_by"]:
        # The sender may have sent it again by now: an attempt runs at most once (law 2).
        return _envelope("cancelled", "late")
    deployed = json.loads(_text(os.path.join(HERE, "told.json")))
    if told["harness_digest"] != deployed["harness_digest"]:
        return _envelope("image", "harness")
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(
            PR_SET_DUMPABLE, 0, 0, 0, 0
        )  # we have the key in memory, so processes with this uid mustn't inspect us
    folder = tempfile.mkdtemp(prefix="kb-")
    try:
        return _judged(told, folder, deployed["image"])
    except OSError as error:
        print(f"the harness couldn't be started: {error}", file=sys.stderr)
        return _envelope("no_report", "start")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judged(told: dict[str, Any], folder: str, image_name: str) -> bytes:
    manifest, key, out, scratch = (os.path.join(folder, name) for name in ("manifest.json", "key", "out", "scratch"))
    os.mkdir(out, 0o700)
    os.mkdir(scratch, 0o700)
    _put(manifest, told["manifest"].encode())
    _put(key, bytes.fromhex(told["key"]))
    environment = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    environment = {"PATH": os.defpath, **environment, "HOME": scratch, "TMPDIR": scratch}
    image = os.environ.get("MODAL_IMAGE_ID", "")
    environment |= {"KBSLURM_IMAGE": image_name, "KBSLURM_IMAGE_DIGEST": image, "KBSLURM_IMAGE_SEEN": "record"}
    work = f"/dev/shm/{told['name']}" if os.access("/dev/shm", os.W_OK) else os.path.join(folder, "work")
    argv = [sys.executable, "-I", os.path.join(HERE, "eval"), manifest, "--key", key, "--out", out, "--work", work]
    argv += ["--min-isolation", str(told["min_isolation"])]
    with open(os.path.join(folder, "log"), "w+b") as log:
        os.makedirs(work, mode=0o700, exist_ok=True)
        child = subprocess.Popen(
            argv,
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code, ending = child.wait(told["time_limit_s"]), "no_report"
        except subprocess.TimeoutExpired:
            code, ending = None, "timeout"
        finally:
            _kill(child)
            shutil.rmtree(work, ignore_errors=True)
        _tell(log)
    sealed = _capped(os.path.join(out, "report.json"), SEALED_CAP)
    if sealed is not None:
        return _reported(code, sealed.decode("utf-8", "replace"), os.path.join(out, "artifacts"), told["result_cap"])
    if os.path.lexists(os.path.join(out, "report.json")):
        return _envelope("bad_report", "report", exit_code=code)
    if ending == "no_report" and _capped(os.path.join(out, "checking"), 2) == b"1\n":
        return _envelope(ending, "checking", exit_code=code)
    return _envelope(ending, "time" if ending == "timeout" else "", exit_code=code)


def _reported(code: int | None, report: str, artifacts: str, cap: int) -> bytes:
    """The report, with as many of the files beside it as fit, the smallest first."""
    files = sorted(_artifacts(artifacts).items(), key=lambda one: len(one[1]))
    for kept in range(len(files), -1, -1):
        told = _envelope("reported", exit_code=code, report=report, artifacts=dict(files[:kept]))
        if len(told) <= cap:
            return told
    return _envelope("bad_report", "large", exit_code=code)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The harness's session. What escapes from it ends with the container, which is used only once."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(KILLING_S)


def _tell(log: Any) -> None:
    """The end of the output, for Modal's own logs: it may contain secrets and goes nowhere else."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_CAP))
    sys.stderr.write(log.read(TAIL_CAP).decode("utf-8", errors="replace"))


def _envelope(
    ending: str,
    why: str = "",
    *,
    exit_code: int | None = None,
    report: str | None = None,
    artifacts: dict[str, str] | None = None,
) -> bytes:
    """Only a code word known to the service, no text, since the submitter may read what it says about a run."""
    told = {"ending": ending, "why": why, "exit_code": exit_code, "report": report, "artifacts": artifacts or {}}
    return zlib.compress(json.dumps({"version": ENVELOPE_VERSION, **told}).encode())


def _artifacts(folder: str) -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder))[:ARTIFACTS_CAP]:
            data = _capped(os.path.join(folder, name), ARTIFACT_CAP)
            if data:
                found[name] = base64.b64encode(data).decode()
    return found


def _capped(path: str, cap: int) -> bytes | None:
    """A regular file's bytes. An unisolated submission could put a link or a pipe there, which isn't followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        looks = os.fstat(fd)
        if not stat.S_ISREG(looks.st_mode) or looks.st_size > cap:
            return None
        data = file.read(cap + 1)
    return data if len(data) <= cap else None


def _put(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    sys.stdout.buffer.write(judge(sys.stdin.buffer.read()))
