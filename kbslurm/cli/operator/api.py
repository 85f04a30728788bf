"""`kbslurm api`: the API alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kbslurm.cli.arguments import LogJson, Verbose
from kbslurm.cli.context import configuration
from kbslurm.errors import EXIT_OK


def api(log_json: LogJson = False, verbose: Verbose = False) -> int:
    """Run the HTTP face alone: on another host than the daemon, or with one that is there already."""
    from kbslurm.api.server import run_api
    from kbslurm.daemon.signals import (
        stop_on_signals,
    )

    config = configuration()
    with stop_on_signals() as stop, _with_parent(stop):
        run_api(config, stop, log_json=log_json, verbose=verbose)
    return EXIT_OK


@contextmanager
def _with_parent(stop: threading.Event) -> Iterator[None]:
    """Stop when the process that started us is gone, where one said that it would stay."""
    if os.environ.get("KBSLURM_API_CHILD") == "1":

        def wait() -> None:
            while os.read(0, 1024):
                pass
            stop.set()

        threading.Thread(target=wait, name="parent", daemon=True).start()
    yield
