"""Runs inside a site's image, by that image's own python3, for `kbslurm doctor --live`: what can be seen from there?

Standard library only; it prints JSON, one object a line, like the script that starts it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Tell everything."""
    tell("inside_python", sys.version.split()[0])
    devices = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev/dri").glob("renderD[0-9]*")]
    tell("inside_devices", sum(map(opens, devices)))
    tell("inside_network", said(can(lambda: socket.create_connection(("1.1.1.1", 443), 3).close())))
    tell("inside_interfaces", " ".join(name for _, name in socket.if_nameindex()))
    tell("inside_processes", sum(path.name.isdigit() for path in Path("/proc").iterdir()))
    tell("inside_munge", said(any(Path(run).joinpath("munge").exists() for run in ("/run", "/var/run"))))
    tell("inside_root_writable", said(can(lambda: Path("/kb-probe").touch())))
    tell("inside_cores", len(os.sched_getaffinity(0)))
    try:
        import torch
    except ImportError:
        return
    tell("inside_torch", torch.__version__)
    tell("inside_gpus", torch.cuda.device_count())


def tell(name: str, value: object) -> None:
    """One line."""
    print(json.dumps({"name": name, "value": str(value)}), flush=True)


def can(action: Callable[[], None]) -> bool:
    """Whether the system lets us."""
    try:
        action()
    except OSError:
        return False
    return True


def opens(path: Path) -> bool:
    """Whether a device's file can be opened."""
    return can(lambda: os.close(os.open(path, os.O_RDONLY)))


def said(yes: bool) -> str:
    """As the script says it."""
    return "yes" if yes else "no"


if __name__ == "__main__":
    main()
