"""A stand-in for the harness, run for real: `python3 -I EVAL/ MANIFEST --key KEY --out OUT`, as the real one is.

What it does stands in the manifest's config: `do` is one of the functions below, `count` a file that gets one line
per execution. It is copied to EVAL/__main__.py beside the real wire.py, so that its reports are sealed like real ones.
"""

from __future__ import annotations

import argparse
import base64
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kbslurm_eval.shared import wire

FOREVER_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--min-isolation", type=int)
    given = parser.parse_args()
    manifest = wire.read_manifest(given.manifest.read_bytes())
    with Path(manifest.config["count"]).open("a") as count:
        count.write(f"{os.getpid()}\n")
    leave(given.out / "heartbeat.json", '{"phase": "test", "done": 1}')
    doing: dict[str, Callable[[wire.Manifest, bytes, Path], int]] = {
        "report": report,
        "report_much": report_much,
        "sleep": sleep,
        "wait": wait,
        "report_then_sleep": report_then_sleep,
        "eat": eat,
        "fail": fail,
        "die_checking": die_checking,
        "too_big": too_big,
        "link": link,
        "tree": tree,
        "hop": hop,
        "print": print_much,
        "profile": profile,
        "lock": lock,
        "nest": nest,
    }
    return doing[manifest.config["do"]](manifest, given.key.read_bytes(), given.out)


def report_much(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """A report that can't be made smaller, and perhaps a file beside it."""
    if manifest.config.get("artifact"):
        (out / "artifacts").mkdir()
        (out / "artifacts" / "trace.bin").write_bytes(os.urandom(manifest.config["artifact"]))
    noise = base64.b85encode(os.urandom(manifest.config["size"])).decode()
    return report(manifest, key, out, noise)


def report(manifest: wire.Manifest, key: bytes, out: Path, noise: str = "") -> int:
    """A sealed report that tells the environment and the working folder that the job found."""
    found = wire.Report(
        version=wire.WIRE_VERSION,
        token=manifest.token,
        attempt=manifest.attempt,
        nonce=manifest.nonce,
        mode=manifest.mode,
        problem_digest=manifest.problem_digest,
        harness_digest="fake",
        verdict="wrong",
        reason="a stand-in never passes",
        score_s=None,
        interval_s=None,
        tests=[],
        benchmarks=[],
        phases=[],
        isolation=wire.Isolation(level=0, means="none"),
        started_at_ns=time.time_ns(),
        ended_at_ns=time.time_ns(),
        host={
            "noise": noise,
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
            "argv": sys.argv,
            "fds": open_fds(),
        },
    )
    leave(out / "report.json", wire.seal(found, key))
    return 0


def sleep(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Until somebody ends it."""
    time.sleep(FOREVER_S)
    return 0


def wait(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Until this file is there; then it reports."""
    while not Path(manifest.config["until"]).exists():
        time.sleep(0.05)
    return report(manifest, key, out)


def report_then_sleep(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    report(manifest, key, out)
    return sleep(manifest, key, out)


def eat(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Memory in bites, in a child, until somebody ends it."""
    if os.fork() == 0:
        eaten = []
        for _ in range(int(manifest.config["bites"])):
            eaten.append(os.urandom(1 << 20))
            time.sleep(0.005)
        time.sleep(FOREVER_S)
    os.wait()
    return 0


def fail(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    return 3


def die_checking(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Go down by this signal, by itself or not, while the mark of a check says this."""
    (out / "checking").write_text(f"{manifest.config['mark']}\n")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.Signals(int(manifest.config["die_by"])))
    return 0


def too_big(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """A report far over the cap (a sparse file, so that it costs no disk)."""
    with (out / "report.json").open("wb") as file:
        file.truncate(1 << 30)
    return 0


def link(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Not a report but a way to something that the job shouldn't be able to have us read."""
    (out / "report.json").symlink_to(manifest.config["target"])
    return 0


def tree(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Leave processes behind that tried to get away: own session, own group, no parent, deaf to every signal."""
    pids = Path(manifest.config["pids"])
    code = (
        "import os, signal, sys, time\n"
        "os.setsid()\n"
        "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)\n"
        "if os.fork(): os._exit(0)\n"
        "with open(sys.argv[1], 'a') as file: file.write(f'{os.getpid()}\\n')\n"
        f"time.sleep({FOREVER_S})\n"
    )
    for _ in range(3):
        subprocess.run([sys.executable, "-I", "-c", code, str(pids)], check=True)
    while len(pids.read_text().split() if pids.exists() else []) < 3:
        time.sleep(0.01)
    if manifest.config.get("stay"):
        return sleep(manifest, key, out)
    if manifest.config.get("die_by"):
        os.kill(os.getpid(), signal.Signals(int(manifest.config["die_by"])))
    return report(manifest, key, out)


def hop(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Leave two processes behind that are never the same for long: each forks, and goes on as its child."""
    hops = Path(manifest.config["hops"])
    code = (
        "import os, sys\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "open(sys.argv[1], 'a').write('x')\n"
        "while True:\n"
        "    if os.fork(): os._exit(0)\n"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-I", "-S", "-c", code, str(hops)], check=True)
    while not hops.exists() or hops.stat().st_size < 2:
        time.sleep(0.01)
    return report(manifest, key, out)


def print_much(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    for _ in range(64):
        sys.stdout.write("x" * 65_536)
    return report(manifest, key, out)


def profile(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Files beside the report: one plain, one a way to something else."""
    (out / "artifacts").mkdir()
    (out / "artifacts" / "trace.json").write_text("{}")
    (out / "artifacts" / "other").symlink_to("/etc/hostname")
    return report(manifest, key, out)


def lock(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Shut every folder that is the job's own, from the inside out, once it is told to."""
    while not Path(manifest.config["go"]).exists():
        time.sleep(0.01)
    work = Path(sys.argv[sys.argv.index("--work") + 1])
    for place in (Path.cwd(), work):
        (place / "shut" / "in").mkdir(parents=True)
        (place / "shut" / "in" / "left").write_text("x")
    if manifest.config.get("report"):
        report(manifest, key, out)
    for place in (Path.cwd(), work):
        for folder in ("shut/in", "shut", "."):
            (place / folder).chmod(0)
    for shut in (out, out.parent):
        shut.chmod(0)
    return 0 if manifest.config.get("report") else sleep(manifest, key, out)


def nest(manifest: wire.Manifest, key: bytes, out: Path) -> int:
    """Leave this many folders with names of this length, one in the other and a shut file in the last, in both places
    that the job may write to; then sleep."""
    work = Path(sys.argv[sys.argv.index("--work") + 1])
    for place in (Path.cwd(), work):
        above = os.open(place, os.O_RDONLY)
        for _ in range(manifest.config["depth"]):
            name = "d" * manifest.config["letters"]
            os.mkdir(name, dir_fd=above)
            fd = os.open(name, os.O_RDONLY, dir_fd=above)
            os.close(above)
            above = fd
        os.close(os.open("left", os.O_CREAT | os.O_WRONLY, 0, dir_fd=above))
        os.fchmod(above, 0)
        os.close(above)
    leave(out / "heartbeat.json", '{"phase": "test", "done": 2}')
    return sleep(manifest, key, out)


def open_fds() -> list[int]:
    """Which descriptors the job was born with, the one for looking left out."""
    return [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and Path(f"/proc/self/fd/{fd}").exists()]


def leave(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


if __name__ == "__main__":
    raise SystemExit(main())
