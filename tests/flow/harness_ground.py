"""A small problem, and the harness run on it as the backends run it: a process of its own, two files in, a sealed
report out, in a session of its own.

The kernel shares processors among sessions, and a runner is one of its own: a judge that shares its session with all of
the tests gets so little of a processor that its runners spend theirs on waiting for it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm_eval.cage import judge_children, processes
from kbslurm_eval.cage.local_runners import LocalRunners
from kbslurm_eval.shared import wire
from tests.services import SYSTEM_PYTHON

ROOT = Path(__file__).resolve().parents[2]
EVAL = ROOT / "eval"
KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "NOBODY-MAY-SEE-THIS"
GENEROUS_S = 240.0

SORTING = """
# sealed-problem: nothing of this text may be seen by a submission
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return [r.random() for _ in range(n)]


def ref_kernel(data):
    return sorted(data)


def check_implementation(data, output):
    want = sorted(data)
    return want == output, "" if want == output else f"{output[:2]} isn't {want[:2]}"
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one run of the harness left."""

    code: int
    stderr: str
    report: wire.Report | None
    out: Path

    @property
    def told(self) -> wire.Report:
        """The report, which must be there."""
        assert self.report is not None, f"no report: exit code {self.code}, {self.stderr}"
        return self.report


def manifest(source: str, **changed: Any) -> wire.Manifest:
    """A manifest for the sorting problem with this submission."""
    told: dict[str, Any] = {
        "version": wire.WIRE_VERSION,
        "token": "t0ken",
        "attempt": 1,
        "nonce": "n0nce",
        "mode": "leaderboard",
        "problem": "sorting",
        "problem_digest": "d" * 64,
        "lang": "py",
        "gpu": "cpu",
        "files": {"reference.py": SORTING},
        "runner_files": [],
        "source": source,
        "tests": [{"n": 40, "seed": 1}, {"n": 0, "seed": 2}],
        "benchmarks": [{"n": 300, "seed": 7}],
        "hidden": [{"n": 91, "seed": 5}],
        "secret_seed": SECRET,
        "ranking_by": "geom",
        "limits": wire.Limits(
            test_s=60, benchmark_s=60, ranked_s=60, total_s=200, memory_bytes=1 << 30, processes=64, file_bytes=32 << 20
        ),
        "budget": wire.Budget(launches=2, calls=3),
    }
    return wire.Manifest(**{**told, **changed})


def limits(**changed: Any) -> wire.Limits:
    """The limits of `manifest` with these in their place."""
    plain = {
        "test_s": 60.0,
        "benchmark_s": 60.0,
        "ranked_s": 60.0,
        "total_s": 200.0,
        "memory_bytes": 1 << 30,
        "processes": 64,
        "file_bytes": 32 << 20,
    }
    return wire.Limits(**{**plain, **changed})


def judged(
    folder: Path,
    told: wire.Manifest,
    *more: str,
    env: Mapping[str, str] | None = None,
    key: bytes = KEY,
    program: Path = EVAL,
) -> Outcome:
    """The harness on this manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(wire.dumps(told))
    (folder / "key").write_bytes(key)
    (folder / "key").chmod(0o400)
    out = folder / "out"
    argv = [
        sys.executable,
        "-I",
        str(program),
        str(folder / "manifest.json"),
        "--key",
        str(folder / "key"),
        "--out",
        str(out),
        *more,
    ]
    plain = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=GENEROUS_S, env={**plain, **(env or {})}, check=False,
        start_new_session=True,
    )  # fmt: skip
    report = out / "report.json"
    found = wire.unseal(report.read_bytes(), key) if report.exists() else None
    return Outcome(code=done.returncode, stderr=done.stderr, report=found, out=out)


def copied(folder: Path) -> Path:
    """The harness once more, in this folder, with what Python has compiled of it: runners keep nothing of that, and
    each would compile it anew."""
    shutil.copytree(EVAL, folder, ignore=shutil.ignore_patterns("*.pyc.*"))  # which somebody writes now
    return folder


def judged_for_an_ordinary_user(
    folder: Path, told: wire.Manifest, name: str = "nobody", *, level: int = 1
) -> wire.Report:
    """The harness at this level on this manifest, started by root as that user with the system's own Python. `folder`
    becomes that user's, too."""
    folder.mkdir(parents=True, exist_ok=True)
    for parent in (p for p in folder.parents if p.stat().st_uid == 0 and p.name.startswith("pytest")):
        parent.chmod(parent.stat().st_mode | 0o011)
    # not in that folder: whoever starts pytest beside this closes the one above it
    with tempfile.TemporaryDirectory(prefix="kb-ordinary-") as place:
        return _judged_for(pwd.getpwnam(name), folder, Path(place), told, level)


def _judged_for(nobody: pwd.struct_passwd, folder: Path, run: Path, told: wire.Manifest, level: int) -> wire.Report:
    (run / "work").mkdir()
    copied(run / "eval")
    (run / "manifest.json").write_text(wire.dumps(told))
    (run / "key").write_bytes(KEY)
    for path in (folder, *folder.rglob("*"), run, *run.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    argv = [SYSTEM_PYTHON, "-I", "-B", str(run / "eval"), str(run / "manifest.json"), "--key", str(run / "key")]
    done = subprocess.run(
        [*argv, "--out", str(run / "out"), "--work", str(run / "work")],
        env={"PATH": "/usr/bin:/bin", "KBSLURM_EVAL_LEVEL": str(level)},
        user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], cwd="/",
        capture_output=True, text=True, timeout=GENEROUS_S, check=False, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list((run / "work").iterdir()) == []
    return wire.unseal((run / "out" / "report.json").read_bytes(), KEY)


@contextmanager
def runners_here(*, level: int) -> Iterator[LocalRunners]:
    """Runners whose judge is this process. What else it has started, such as the tests' database, is no orphan of
    theirs, which they would stop and end."""
    others = set(processes.children_of(os.getpid())) - judge_children.OWN_CHILDREN
    for pid in others:
        judge_children.own_process(pid)
    runners = LocalRunners(wire.Limits(), level=level)
    try:
        yield runners
    finally:
        runners.close()
        for pid in others:
            judge_children.disown_process(pid)


def achieved_level() -> int:
    """The isolation that can be reached on this machine."""
    import json

    done = subprocess.run(
        [sys.executable, "-I", str(EVAL), "--probe"], capture_output=True, text=True, timeout=GENEROUS_S, check=True
    )
    return int(json.loads(done.stdout)["level"])
