"""What a runner in an unprivileged container has open: its judge, in another, may not see that, and still counts it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.inside.walk import EXAMPLE, submission, walk_at

LOCKS = """
import fcntl, os

held = os.open("/dev/null", os.O_RDONLY)
for n in range(30_000):
    fcntl.lockf(held, fcntl.LOCK_SH, 1, 2 * n)
"""
SENT = """
import array, os, socket, tempfile

kept = []
for _ in range(40):
    kept.append(socket.socketpair())
    with tempfile.TemporaryFile() as file:
        kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])
"""
SOCKETS = """
import os, socket

told, tell = os.pipe()
for _ in range(14):
    if os.fork() == 0:
        kept = []
        try:
            while True:
                kept += socket.socketpair()
        except OSError:
            os.write(tell, b"x")
        os.read(socket.socketpair()[0].fileno() if not kept else kept[0].fileno(), 1)
for _ in range(14):
    os.read(told, 1)
"""
POOL = """
import multiprocessing

table = bytearray(b"x") * (400 << 20)


def part(n):
    return table[n::4096].count(b"x")


pool = multiprocessing.get_context("fork").Pool(6)
pool.map(part, range(24), 1)
"""
WANTED = {
    "locks": (LOCKS, "memory", "locks on ranges of files"),
    "sent": (SENT, "memory", "on their way through sockets"),
    "sockets": (SOCKETS, "memory", "used more memory than allowed"),
    "pool": (POOL, "passed", ""),
}


def test_what_a_runner_has_open_counts_in_a_container_as_well(database_url: str, tmp_path: Path) -> None:
    """The first three passed, and the last, which is honest, held too much memory: its table, once for each process."""
    problem = shutil.copytree(EXAMPLE, tmp_path / "rowsoftmax")
    told = (problem / "task.yml").read_text()
    (problem / "task.yml").write_text(told.replace("  launches: 3\n", "  launches: 3\n  memory_mb: 1024\n"))
    with walk_at(database_url, Path("/shared/seen"), problem=problem, memory="3G") as walk:
        for name, (source, _, _) in WANTED.items():
            walk.stage.submit(source + submission("accepted/by_row.py"), by=name, mode="test")
        with walk.daemon():
            runs = walk.wait_ended(len(WANTED))
        rows = walk.stage.rows("SELECT detail FROM verdict ORDER BY run_id")
    for run, row, (name, (_, verdict, said)) in zip(runs, rows, WANTED.items(), strict=True):
        assert run["verdict"] == verdict, (name, run, row["detail"])
        assert said in run["verdict_reason"], (name, run)
        assert row["detail"]["isolation"]["level"] == 2, row["detail"]["isolation"]
        assert not [note for note in row["detail"]["isolation"]["notes"] if "can't be seen here" in note], name
