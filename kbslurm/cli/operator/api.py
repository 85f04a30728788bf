"""`kbslurm api`: only the API."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kbslurm.cli.arguments import LogJson, Verbose
from kbslurm.cli.context import configuration
from kbslurm.cli.service_in_use import say_database
from kbslurm.errors import EXIT_OK


def api(log_json: LogJson = False, verbose: Verbose = False) -> int:
    """Run only the HTTP API, on a different host than the daemon or next to a running one. SIGHUP has it take a changed
    configuration."""
    from kbslurm.api.server import run_api
    from kbslurm.daemon.signals import reload_on_hangup, stop_on_signals

    config = configuration()
    if "KBSLURM_API_CHILD" not in os.environ:
        say_database(config, as_json=log_json)
    reload = threading.Event()
    with stop_on_signals() as stop, reload_on_hangup(stop, reload.set), _with_parent(stop):
        run_api(config, stop, log_json=log_json, verbose=verbose, reload=reload)
    return EXIT_OK


@contextmanager
def _with_parent(stop: threading.Event) -> Iterator[None]:
    """Stop when the parent process is gone, if it asked for that."""
    if os.environ.get("KBSLURM_API_CHILD") == "1":

        def wait() -> None:
            while os.read(0, 1024):
                pass
            stop.set()

        threading.Thread(target=wait, name="parent", daemon=True).start()
    yield
