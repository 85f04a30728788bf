"""`kbslurm demo --ray` as a stranger runs it: a worker dies in mid-run, a third joins, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.ray_cluster import holding
from tests.services import RAY_CLUSTER, USER_NAMESPACES, needs

PATIENCE_S = 600.0


def started(root: Path, temporary: Path, *words: str, path: str | None = None) -> subprocess.Popen[str]:
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env |= {"TMPDIR": str(temporary), **({"PATH": path} if path is not None else {})}
    command = [sys.executable, "-m", "kbslurm", "demo", "--ray", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for Ray's sockets."""
    place = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    yield place
    shutil.rmtree(place)


def left_over(temporary: Path) -> Sequence[str]:
    """The processes that have a file there open, or that were started with it for their temporary files."""
    wanted = f"\0TMPDIR={temporary}".encode()
    pids = {*holding(temporary)}
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and wanted in b"\0" + (process / "environ").read_bytes():
                pids.add(int(process.name))
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids]


@needs(RAY_CLUSTER, USER_NAMESPACES)
def test_a_worker_dies_a_third_joins_and_every_run_has_one_verdict(root: Path, temporary: Path) -> None:
    demo = started(root, temporary, "--json")
    out, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, (out, err[-3000:])
    told = json.loads(out)
    assert told["ok"]
    firsts = [run for run in told["runs"] if not run["second"]]
    assert Counter(run["verdict"] for run in firsts) == {"passed": 4, "wrong": 1, "error": 1, "violation": 1}
    (repeated,) = [run for run in told["runs"] if len([node for node in run["nodes"] if node is not None]) > 1]
    assert repeated["verdict"] == "passed" and len(set(repeated["nodes"])) == 2, "lost on one node, measured on another"
    (later,) = {run["nodes"][-1] for run in firsts if run["gpu"] == "A100"}
    assert later == "127.0.0.5", "the worker that joined while it went on took what waited for it"
    assert left_over(temporary) == [] and list(temporary.iterdir()) == []


@pytest.mark.faults  # `make test` plays it once, to its end
@needs(RAY_CLUSTER, USER_NAMESPACES)
def test_an_interrupted_one_leaves_nothing_behind(root: Path, temporary: Path) -> None:
    demo = started(root, temporary, "--once")
    assert demo.stdout is not None
    until = time.monotonic() + PATIENCE_S
    line = ""
    while "A worker is killed" not in line:
        line = demo.stdout.readline()
        assert line and time.monotonic() < until, demo.communicate()
    assert left_over(temporary)
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130 and "Traceback" not in err, err
    assert left_over(temporary) == [] and list(temporary.iterdir()) == []


@needs(RAY_CLUSTER)
def test_where_namespaces_arent_allowed_it_says_so_in_one_sentence(root: Path, temporary: Path) -> None:
    """As where `unshare` fails: here there is none on the PATH."""
    demo = started(root, temporary, path="")
    out, err = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 2 and out == ""
    assert "user namespaces aren't allowed here" in err and "Traceback" not in err and len(err.splitlines()) <= 2, err
