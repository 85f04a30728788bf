"""`kbslurm …`: what competitors, hosts and operators type. `commands` lists it all, `app` makes it a program."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Never

from kbslurm.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, KbslurmError, Misconfigured


def main() -> int:
    """Run one command line. What we foresaw is one sentence and an exit code; a bug of ours says where its log is."""
    try:
        _interrupt_by_name()
        from kbslurm.cli.app import app

        return _code(app(prog_name="kbslurm", standalone_mode=False))
    except KbslurmError as error:
        return _told(error)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _hush()
        return EXIT_OK
    except OSError as error:
        found = _of_the_disk(error)
        return _bug(error) if found is None else _told(found)
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user; the whole of it is kept in a file
        return _usage(error)


class Interrupted(KeyboardInterrupt):
    """^C. By a name of its own: Python ends itself by a signal, whatever its caller made of it, once a plain
    KeyboardInterrupt has left an `exec`, and every dataclass is made by one."""


def _interrupt_by_name() -> None:
    def interrupted(*_: object) -> Never:
        raise Interrupted

    # Where nobody is to be interrupted (a script's `&`), it stays so.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted)


def _code(found: Any) -> int:
    return found if isinstance(found, int) else EXIT_OK


def _told(error: KbslurmError) -> int:
    from kbslurm.cli.output import printing

    try:
        printing.error(error, as_json="--json" in sys.argv)
    except OSError:
        _hush()  # standard output is what takes nothing
        with suppress(OSError):
            printing.error(error, as_json=False)
    return error.exit_code


def _hush() -> None:
    """Nobody takes what we print: else Python would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_the_disk(error: OSError) -> Misconfigured | None:
    """What isn't our bug wherever it is met: a disk that takes nothing more."""
    if error.errno == errno.ENOENT and "temporary directory" in (error.strerror or ""):
        return Misconfigured("no temporary directory can be written", fix="Name one that can be in TMPDIR.")
    said = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the file system is read-only",
    }.get(error.errno or 0)
    if said is None:
        return None
    where = f"{error.filename} can't be written: " if error.filename else ""
    return Misconfigured(f"{where}{said}", fix="Make room there, or name another place (TMPDIR, [daemon] state_dir).")


def _usage(error: Exception) -> int:
    """A wrong command line by click's own words; anything else is a bug of ours."""
    import typer

    if isinstance(error, typer.Abort):
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, typer.BadParameter.__mro__[2]):  # ClickException, which typer doesn't export
        usage: Any = error
        usage.show()
        return int(usage.exit_code)
    return _bug(error)


def _bug(error: Exception) -> int:
    import tempfile
    import traceback

    if os.environ.get("KBSLURM_DEBUG"):
        raise error
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kbslurm-bug-", suffix=".txt", delete=False) as file:
            file.write(text)
        report = f"please report {file.name}; KBSLURM_DEBUG=1 shows it here"
    except OSError:
        report = "KBSLURM_DEBUG=1 shows it; no place here takes a file of it"
    print(f"error: a bug of ours ({type(error).__name__})", file=sys.stderr)
    print(f" hint: {report}.", file=sys.stderr)
    return EXIT_BUG
