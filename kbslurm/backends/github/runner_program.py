"""Executes an order on a GitHub runner, as a standalone program: `python3 -I carry.py claim|open|run|close|keep`.

The host's repository has a copy named carry.py, next to `supervise.py` and `eval/`; the service imports it only for the
sealing. One workflow step each:
  claim   makes the reference refs/kbslurm/claim/NAME, which only one job ever can: an attempt runs at most once
  open    opens the order with the repository's secret, into files that only this account can read
  run     the harness under the same supervisor as local attempts. This step has no access to the secret
  close   seals the result for the service: the report, how it ended, a profile's files
  keep    only on an Enterprise Server, which takes no artifacts: stores that result under refs/kbslurm/result/NAME

Order and result are sealed with AES-256-GCM under keys that are derived from the secret for one name and one direction:
people who can read the repository see neither hidden cases nor reports, and an order can't be reused for another
attempt. Standard library only, except for the cipher.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FORM = 1
NAME = re.compile(r"kb-[A-Za-z0-9_-]{1,80}")
NONCE = 12
ORDER_CAP = 48 << 20
RESULT_CAP = 96 << 20
OBJECT_CAP = 20 << 20  # in base64 it has to fit into one answer of the API
SEALED_REPORT_CAP = 16_000_000  # twice the wire's cap: a sealed report quotes its text
ARTIFACTS, ARTIFACT_CAP = 12, 8 << 20
LOG_BYTES, LOG_TAIL = 1 << 20, 16_384
HANDED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME"),
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
)
TRIES = 5
HERE = Path(__file__).resolve().parent


class OrderFailed(RuntimeError):
    """The order can't be executed here; the message says why."""


# --------------------------------------------------------------------------------------------------------- the sealing


def key_in(text: str) -> bytes:
    """The repository's secret: 64 hexadecimal digits, or the same 32 bytes in base64."""
    found = text.strip()
    is_hex = re.fullmatch(r"[0-9a-fA-F]{64}", found) is not None
    try:
        key = bytes.fromhex(found) if is_hex else base64.b64decode(found, validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise OrderFailed("KBSLURM_RUN_KEY isn't a 32-byte key (64 hexadecimal digits)")
    return key


def sealed(data: bytes, secret: bytes, name: str, what: str) -> bytes:
    """Seal these bytes, compressed, for holders of the secret; `what` is the direction: order or result."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE)
    return nonce + AESGCM(_key(secret, name, what)).encrypt(nonce, zlib.compress(data, 6), _bound(name, what))


def opened(data: bytes, secret: bytes, name: str, what: str, cap: int) -> bytes:
    """Open what was sealed for this name and direction, at most `cap` bytes; OrderFailed otherwise."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        packed = AESGCM(_key(secret, name, what)).decrypt(data[:NONCE], data[NONCE:], _bound(name, what))
        unpacking = zlib.decompressobj()
        found = unpacking.decompress(packed, cap + 1)
    except (InvalidTag, ValueError, zlib.error):
        raise OrderFailed(f"the {what} of {name} wasn't sealed with this key") from None
    if len(found) > cap or not unpacking.eof:
        raise OrderFailed(f"the {what} of {name} is larger than {cap} bytes")
    return found


def _key(secret: bytes, name: str, what: str) -> bytes:
    return hmac.new(secret, _bound(name, what), hashlib.sha256).digest()


def _bound(name: str, what: str) -> bytes:
    return f"kbslurm {FORM} {what} {name}".encode()


# ----------------------------------------------------------------------------------------------------------- the steps


def main(argv: Sequence[str]) -> int:
    steps = {"claim": claim, "open": unpack, "run": run, "close": close, "keep": keep}
    if len(argv) != 1 or argv[0] not in steps:
        print(f"usage: carry.py {'|'.join(steps)}", file=sys.stderr)
        return 2
    try:
        return steps[argv[0]](os.environ)
    except (OrderFailed, OSError) as error:
        print(f"::error title=kbslurm::{error}", file=sys.stderr)
        return 6


def claim(env: Mapping[str, str]) -> int:
    """Take the claim, or tell the other steps that another job has it."""
    name = _name(env)
    mine = env.get("GITHUB_RUN_ATTEMPT", "1") == "1"  # "Re-run" starts nothing, however old the claim is
    if mine:
        body = {"ref": f"refs/kbslurm/claim/{name}", "sha": env["GITHUB_SHA"]}
        status, said = _ask(env, "POST", f"/repos/{env['GITHUB_REPOSITORY']}/git/refs", body)
        if status not in (201, 422):
            raise OrderFailed(f"the claim of {name} couldn't be made: the API answered with status {status}")
        mine = status == 201
        if not mine and b"already exists" not in said:
            raise OrderFailed(f"the claim of {name} was refused: {said[:200].decode(errors='replace')}")
    with Path(env["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as output:
        output.write(f"mine={'yes' if mine else 'no'}\n")
    print(f"{name} is {'claimed' if mine else 'claimed already, run again or was cancelled: this job ends'}")
    return 0


def unpack(env: Mapping[str, str]) -> int:
    """Open the order into the attempt's folder."""
    name, secret = _name(env), key_in(env.get("KBSLURM_RUN_KEY", ""))
    text = env.get("ORDER", "")
    if not text:
        status, said = _ask(env, "GET", f"/repos/{env['GITHUB_REPOSITORY']}/git/blobs/{env['BLOB']}")
        if status != 200:
            raise OrderFailed(f"the order's blob can't be read: the API answered with status {status}")
        text = base64.b64decode(json.loads(said)["content"]).decode()
    order = json.loads(opened(base64.b64decode(text), secret, name, "order", ORDER_CAP))
    if order["form"] != FORM or order["name"] != name:
        raise OrderFailed(
            "this order is for another attempt or from another kbslurm version: run `kbslurm github install` again"
        )
    folder = _folder(env, name)
    _remove(folder)
    for made in (folder, folder / "out", folder / "scratch"):
        made.mkdir(mode=0o700, parents=made == folder)
        made.chmod(0o700)
    put(folder / "manifest.json", order.pop("manifest").encode(), 0o400)
    put(folder / "key", bytes.fromhex(order.pop("key")), 0o400)
    put(folder / "starting", b"", 0o600)
    put(folder / "told.json", json.dumps(order).encode(), 0o400)
    return 0


def run(env: Mapping[str, str]) -> int:
    """The harness, under its supervisor. How it ended is in exit.json; this step only fails if it couldn't start."""
    name = _name(env)
    folder = _folder(env, name)
    try:
        return _run(env, folder)
    except OrderFailed as error:
        if not (folder / "exit.json").exists():
            put(folder / "exit.json", json.dumps({"ending": "no_report", "reason": str(error)}).encode(), 0o600)
        raise


def _run(env: Mapping[str, str], folder: Path) -> int:
    told = json.loads((folder / "told.json").read_bytes())
    # the workflow has found one that is new enough; another command has to be configured
    python = sys.executable if told["python"] == "python3" else shutil.which(told["python"])
    if python is None:
        raise OrderFailed(f"there is no {told['python']} on this runner")
    if harness_digest(HERE / "eval") != told["harness"]:
        raise OrderFailed(
            "the harness in this repository isn't the service's: run `kbslurm github install` and push it"
        )
    put(folder / "order.json", json.dumps(supervisors_order(env, folder, told, HERE / "eval")).encode(), 0o400)
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import supervise; supervise.prctl(1, 15);"
        " raise SystemExit(supervise.main(sys.argv[2], os.open(sys.argv[3], os.O_RDONLY)))"
    )
    argv = [python, "-I", "-S", "-c", program, str(HERE), str(folder / "order.json"), str(folder / "starting")]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as supervisor:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.send_signal(signal.SIGTERM))
        supervisor.wait()
    if not (folder / "exit.json").is_file():
        raise OrderFailed("the supervisor ended without a result")
    return 0


def close(env: Mapping[str, str]) -> int:
    """Seal the result and remove everything else."""
    name, secret = _name(env), key_in(env.get("KBSLURM_RUN_KEY", ""))
    folder = _folder(env, name)
    came: dict[str, Any] = {"form": FORM, "name": name, "node": env.get("RUNNER_NAME", ""), "log": ""}
    came["exit"] = json.loads(read_capped(folder / "exit.json", 65_536) or b"{}")
    report = read_capped(folder / "out" / "report.json", SEALED_REPORT_CAP)
    came["report"] = None if report is None else base64.b64encode(report).decode()
    came["log"] = (read_capped(folder / "log", 2 * LOG_BYTES) or b"")[-LOG_TAIL:].decode(errors="replace")
    came["artifacts"] = artifacts_in(folder / "out" / "artifacts")
    result = sealed(json.dumps(came).encode(), secret, name, "result")
    if len(result) > OBJECT_CAP and is_enterprise(env["GITHUB_API_URL"]):
        print(f"{name}: its profile's files are too large for a git object and are left out")
        result = sealed(json.dumps(came | {"artifacts": {}}).encode(), secret, name, "result")
    _result_file(env).parent.mkdir(exist_ok=True)
    _result_file(env).write_bytes(result)
    _remove(folder)
    print(f"{name} ended: {came['exit'].get('ending', 'before the harness started')}")
    return 0


def keep(env: Mapping[str, str]) -> int:
    """Store the sealed result in the repository: a commit with one file, under a reference of the attempt's own."""
    name, data = _name(env), _result_file(env).read_bytes()
    blob = _made(env, "blobs", {"content": base64.b64encode(data).decode(), "encoding": "base64"})
    tree = _made(env, "trees", {"tree": [{"path": "result", "mode": "100644", "type": "blob", "sha": blob}]})
    commit = _made(env, "commits", {"message": f"Result of {name}", "tree": tree, "parents": []})
    body = {"ref": f"refs/kbslurm/result/{name}", "sha": commit}
    status, said = _ask(env, "POST", f"/repos/{env['GITHUB_REPOSITORY']}/git/refs", body)
    # a repeated call after a lost answer finds its own reference
    if status != 201 and not (status == 422 and b"already exists" in said):
        raise OrderFailed(f"the result of {name} couldn't be stored: the API answered with status {status}")
    print(f"the result of {name} is stored in this repository")
    return 0


# -------------------------------------------------------------------------------------------------------------- pieces


def is_enterprise(api_url: str) -> bool:
    """Whether this is the API of a GitHub Enterprise Server: theirs are below /api/v3, github.com's and its regions'
    aren't."""
    return api_url.rstrip("/").endswith("/api/v3")


def _result_file(env: Mapping[str, str]) -> Path:
    return Path(env["RUNNER_TEMP"]) / "kbslurm-result" / "result"


def _made(env: Mapping[str, str], kind: str, body: Any) -> str:
    """A new git object in the repository; its hash."""
    status, said = _ask(env, "POST", f"/repos/{env['GITHUB_REPOSITORY']}/git/{kind}", body)
    if status != 201:
        raise OrderFailed(f"the result couldn't be stored: the API answered with status {status} to a POST of {kind}")
    return str(json.loads(said)["sha"])


def _remove(folder: Path) -> None:
    """As far as it goes. Where a job left a thousand folders within folders, the library's way ends in an error."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


def harness_digest(folder: Path) -> str:
    """The digest of the harness in this folder: sha256 over its files and their names."""
    told = hashlib.sha256()
    for path in sorted((*folder.rglob("*.py"), *folder.glob("supervise.sh"))):
        body = path.read_bytes()
        told.update(f"{path.relative_to(folder).as_posix()}\0{len(body)}\0".encode() + body)
    return told.hexdigest()


def supervisors_order(env: Mapping[str, str], folder: Path, told: Mapping[str, Any], harness: Path) -> dict[str, Any]:
    """The supervisor's order: the same limits and the same short environment as on any other machine."""
    shared = Path("/dev/shm")  # noqa: S108  # a folder of the attempt's own in it
    work = (shared if os.access(shared, os.W_OK) else folder) / f"{told['name']}-work"
    own = {"HOME": str(folder / "scratch"), "TMPDIR": str(folder / "scratch"), "KBSLURM_ATTEMPT": told["name"]}
    return {
        "argv": [
            *("-I", str(harness), str(folder / "manifest.json"), "--key", str(folder / "key")),
            *("--out", str(folder / "out"), "--work", str(work), *told["arguments"]),
        ],
        "environment": {"PATH": os.defpath, **{key: env[key] for key in HANDED_ON if key in env}, **own},
        "time_limit_s": told["time_limit_s"],
        "memory_bytes": told["memory_bytes"],
        "look_every_s": 0.25,
        "log_bytes": LOG_BYTES,
        "report_cap": SEALED_REPORT_CAP,
        "boot": "",
        "claim": str(folder / "claim"),
        "owner": str(folder / "claim" / "owner.json"),
        "cancelled": str(folder / "cancelled"),
        "scratch": str(folder / "scratch"),
        "work": str(work),
        "secrets": [str(folder / "manifest.json"), str(folder / "key")],
        "report": str(folder / "out" / "report.json"),
        "checking": str(folder / "out" / "checking"),
        "exit": str(folder / "exit.json"),
        "log": str(folder / "log"),
        "doorbells": str(folder / "doorbells"),
    }


def _name(env: Mapping[str, str]) -> str:
    name = env.get("NAME", "")
    if NAME.fullmatch(name) is None:
        raise OrderFailed("this workflow is started by kbslurm, with the name of an attempt")
    return name


def _folder(env: Mapping[str, str], name: str) -> Path:
    return Path(env["RUNNER_TEMP"]) / "kbslurm" / name


def put(path: Path, data: bytes, mode: int) -> None:
    """A new file; nothing that is there is followed or written over."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def read_capped(path: Path, cap: int) -> bytes | None:
    """A regular file of at most `cap` bytes. Anything else that a submission may have put there isn't followed or
    read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = file.read(cap + 1)
    return data if len(data) <= cap else None


def artifacts_in(folder: Path) -> dict[str, str]:
    """A profile's files, in base64."""
    found: dict[str, str] = {}
    if folder.is_symlink() or not folder.is_dir():
        return found
    for entry in sorted(folder.iterdir())[: 4 * ARTIFACTS]:
        data = read_capped(entry, ARTIFACT_CAP)
        if data is not None and len(found) < ARTIFACTS:
            found[entry.name] = base64.b64encode(data).decode()
    return found


def _ask(env: Mapping[str, str], method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """One call of the API with the job's own token, repeated while the service has errors."""
    import urllib.error
    import urllib.request

    data = None if body is None else json.dumps(body).encode()
    headers = {
        "Authorization": f"Bearer {env['GH_TOKEN']}",
        "Accept": "application/vnd.github+json",
        "User-Agent": "kbslurm",
        "Content-Type": "application/json",
    }
    why = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(min(20.0, 2.0**attempt))
        asked = urllib.request.Request(env["GITHUB_API_URL"] + path, data, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
                return answer.status, answer.read(ORDER_CAP)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(65_536)
            if error.code < 500 and error.code not in (403, 429):
                return error.code, said
            why = f"the API answered with status {error.code}"
        except OSError as error:
            why = str(error)
    raise OrderFailed(f"GitHub's API can't be reached: {why}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
