"""`kbslurm demo --ray` as a stranger runs it: a worker dies in mid-run, a third joins, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.services import RAY_CLUSTER, USER_NAMESPACES, needs

PATIENCE_S = 600.0


def started(root: Path, temporary: Path, *words: str, path: str | None = None) -> subprocess.Popen[str]:
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env |= {"TMPDIR": str(temporary), **({"PATH": path} if path is not None else {})}
    command = [sys.executable, "-m", "kbslurm", "demo", "--ray", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def left_over(temporary: Path) -> Sequence[str]:
    """The processes that were started with this folder for temporary files."""
    wanted, found = f"TMPDIR={temporary}".encode(), []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


@needs(RAY_CLUSTER, USER_NAMESPACES)
def test_a_worker_dies_a_third_joins_and_every_run_has_one_verdict(root: Path, tmp_path: Path) -> None:
    demo = started(root, tmp_path, "--json")
    out, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, (out, err[-3000:])
    told = json.loads(out)
    assert told["ok"]
    firsts = [run for run in told["runs"] if not run["second"]]
    assert Counter(run["verdict"] for run in firsts) == {"passed": 4, "wrong": 1, "error": 1, "violation": 1}
    (repeated,) = [run for run in told["runs"] if len(run["nodes"]) > 1]
    assert repeated["verdict"] == "passed" and len(set(repeated["nodes"])) == 2, "lost on one node, measured on another"
    (later,) = {run["nodes"][-1] for run in firsts if run["gpu"] == "A100"}
    assert later == "127.0.0.5", "the worker that joined while it went on took what waited for it"
    assert left_over(tmp_path) == [] and list(tmp_path.iterdir()) == []


@needs(RAY_CLUSTER, USER_NAMESPACES)
def test_an_interrupted_one_leaves_nothing_behind(root: Path, tmp_path: Path) -> None:
    demo = started(root, tmp_path, "--once")
    assert demo.stdout is not None
    until = time.monotonic() + PATIENCE_S
    line = ""
    while "A worker is killed" not in line:
        line = demo.stdout.readline()
        assert line and time.monotonic() < until, demo.communicate()
    assert left_over(tmp_path)
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130 and "Traceback" not in err, err
    assert left_over(tmp_path) == [] and list(tmp_path.iterdir()) == []


@needs(RAY_CLUSTER)
def test_where_namespaces_arent_allowed_it_says_so_in_one_sentence(root: Path, tmp_path: Path) -> None:
    """As where `unshare` fails: here there is none on the PATH."""
    demo = started(root, tmp_path, path="")
    out, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 2 and out == ""
    assert "user namespaces aren't allowed here" in err and "Traceback" not in err and len(err.splitlines()) <= 2, err
