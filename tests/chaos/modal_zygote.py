"""As `zygote`, for daemons whose runs go to Modal: `python -m tests.chaos.modal_zygote URL ROOT API-URL`.

A daemon finds in ROOT/later-s how far its backend's clock is ahead: what was sent and lost is waited out so.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import modal.client  # noqa: F401  # each daemon would take a second for it

from kbslurm.backends.modal.backend import ModalBackend, ModalGpu
from kbslurm.backends.modal.connection import Connection
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import crash_point
from tests.chaos.zygote import GPU, main, serve
from tests.fakes.modal import TOKEN


def place(root: Path, api_url: str) -> Place:
    """The platform at this address, with the app whose folder is below `root`."""
    told = json.loads((root / "app" / "told.json").read_text())
    later_s = float((root / "later-s").read_text())
    backend = ModalBackend(
        Connection(*TOKEN, api_url=api_url),
        app=told["app"],
        gpus={GPU: ModalGpu(slots=4, timeout_s=3600.0, memory_bytes=1 << 40)},
        harness_digest=told["harness_digest"],
        start_within_s=300.0,
        now=lambda: time.time() + later_s,
        crash_point=lambda step: crash_point(f"modal.{step}"),
    )
    return Place(backend=backend, poll_s=0.2, grace_s=0.0, sweep_gap_s=0.1, patience_s=300.0)


if __name__ == "__main__":
    at = Path(sys.argv[2])
    main(lambda: serve(sys.argv[1], place(at, sys.argv[3]), at / "daemon.log"))
