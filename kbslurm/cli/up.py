"""`kbslurm up`: the daemon in the foreground, the API beside it, until SIGTERM or ^C. `kbslurm api`: the API alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from kbslurm.cli.frame import app, chosen, configuration
from kbslurm.errors import EXIT_OK, Misconfigured

STOP_WITHIN_S = 30

LogJson = Annotated[bool, typer.Option("--log-json", "--json", help="One JSON object per line.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]


@app.command()
def up(
    once: Annotated[bool, typer.Option("--once", help="End when nothing is queued or open any more.")] = False,
    api: Annotated[bool, typer.Option("--api/--no-api", help="Whether the HTTP face is started, too.")] = True,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> int:
    """Run daemon and API. Stopped by SIGTERM or ^C it leaves running jobs alone; the next start finds them again.

    With --once there is no API, since nobody would have the time to call it.
    """
    from kbslurm import wiring
    from kbslurm.daemon import run_daemon, stop_on_signals

    config = configuration()
    if not config.sites.use and not config.daemon.local.slots:
        raise Misconfigured(
            "no backend is configured, so nothing could run",
            fix="Name sites in kbslurm.toml ([sites] use), or write: [daemon.local] slots = { H100 = 1 }.",
        )
    if once or not api:
        run_daemon(config, once=once, log_json=log_json, verbose=verbose)
        return EXIT_OK
    with (
        stop_on_signals() as stop,
        wiring.opened_store(config),  # migrated before there are two of us
        _beside(stop, log_json=log_json, verbose=verbose) as face,
    ):
        run_daemon(config, stop, log_json=log_json, verbose=verbose)
        code = face.poll()
    if code:
        raise Misconfigured("the API ended by itself", fix="Look at what it said above, or start with --no-api.")
    return EXIT_OK


@app.command()
def api(log_json: LogJson = False, verbose: Verbose = False) -> int:
    """Run the HTTP face alone: on another host than the daemon, or with one that is there already."""
    from kbslurm.api.server import run_api
    from kbslurm.daemon import stop_on_signals

    config = configuration()
    with stop_on_signals() as stop, _with_parent(stop):
        run_api(config, stop, log_json=log_json, verbose=verbose)
    return EXIT_OK


@contextmanager
def _beside(stop: threading.Event, *, log_json: bool, verbose: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The API as a child process. When it ends by itself the whole ends: half a service is worse to notice."""
    argv = [sys.executable, "-m", "kbslurm"]
    argv += ["--config", str(chosen.config)] if chosen.config else []
    argv += ["api", *(["--log-json"] if log_json else []), *(["--verbose"] if verbose else [])]
    # Its standard input is a pipe of ours: should we be killed, it reads the end of it and stops.
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, env={**os.environ, "KBSLURM_API_CHILD": "1"})

    def watch() -> None:
        child.wait()
        stop.set()

    threading.Thread(target=watch, name="api-watch", daemon=True).start()
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdin is not None:
            child.stdin.close()


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
