"""A real sshd on a free port of loopback, for whoever runs the tests, with keys of its own: a site's login node."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "/usr/sbin/sshd"
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 100
{more}
"""


@dataclass(frozen=True, kw_only=True)
class Sshd:
    """How to log in there."""

    port: int
    folder: Path
    pid: int

    def submit(self) -> str:
        """[submit] of a site whose login node this is."""
        return (
            f'[submit]\nvia = "ssh"\nhost = "127.0.0.1"\nport = {self.port}\nuser = "{getpass.getuser()}"\n'
            f'identity = "{self.folder}/client"\nknown_hosts = "{self.folder}/known_hosts"\n'
        )

    def sessions(self) -> list[int]:
        """The processes of logins that are open now."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.pid:
                found.append(int(entry.parent.name))
        return found


@contextmanager
def serving(folder: Path, *, more: str = "") -> Iterator[Sshd]:
    """sshd until the end of the block. `more`: further lines of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("host", "client"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    kind, key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder, more=more))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin") or PROGRAM
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(
            [program, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        give_up = time.monotonic() + 30
        while True:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert child.poll() is None and time.monotonic() < give_up, (folder / "log").read_text()
            time.sleep(0.02)
        yield Sshd(port=port, folder=folder, pid=child.pid)
    finally:
        child.terminate()
        child.wait(timeout=30)
