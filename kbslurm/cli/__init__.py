"""The `kbslurm` command line for competitors, hosts and operators. `commands` lists the commands, `app` runs them."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Never, TextIO

from kbslurm.cli.stopped import Stopped
from kbslurm.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, Invalid, KbslurmError, Misconfigured


def main() -> int:
    """Run one command line. An expected error is one sentence and an exit code; a bug says where its traceback is."""
    _open_what_is_closed()
    return _flushed(_ran())


def _ran() -> int:
    try:
        _interrupt_by_name()
        from kbslurm.cli.app import app

        return _code(app(prog_name="kbslurm", standalone_mode=False))
    except KbslurmError as error:
        return _told(error)
    except (KeyboardInterrupt, Stopped):
        return _interrupted()
    except BrokenPipeError:
        _hush()
        return EXIT_OK
    except OSError as error:
        found = _of_the_disk(error)
        return _bug(error) if found is None else _told(found)
    except Exception as error:  # noqa: BLE001 - users never see a traceback; it is saved to a file
        return _usage(error)


def _open_what_is_closed() -> None:
    """Who closes an output (`>&-`) wants nothing of it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _flushed(code: int) -> int:
    """The exit code, with all that was printed handed over: what is left fails at exit, with a code of Python's own."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _hush()
    except OSError as error:
        _hush()
        found = _of_the_disk(error)
        code = code or (_bug(error) if found is None else _told(found))
    try:
        sys.stderr.flush()
    except OSError:
        _hush(sys.stderr)
    return code


class Interrupted(KeyboardInterrupt):
    """^C, as a subclass: once a plain KeyboardInterrupt has left an `exec` (every dataclass runs one), Python kills
    itself with the signal even if the caller handled the exception."""


def _interrupt_by_name() -> None:
    def interrupted(*_: object) -> Never:
        raise Interrupted

    # Where SIGINT is ignored (a script's `&`), keep it ignored.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted)


def _interrupted() -> int:
    """^C: with --json the object that every other error is, too."""
    if _wants_json():
        import json

        with suppress(OSError):
            print(json.dumps({"error": {"kind": "Interrupted", "message": "interrupted", "hint": None}}), flush=True)
    else:
        with suppress(OSError):
            print("\ninterrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


def _wants_json() -> bool:
    from kbslurm.cli.chosen import chosen

    return "--json" in sys.argv or chosen.form == "json"


def _code(found: Any) -> int:
    return found if isinstance(found, int) else EXIT_OK


def _told(error: KbslurmError) -> int:
    from kbslurm.cli.output import printing

    try:
        printing.error(error, as_json=_wants_json())
    except OSError:
        _hush()  # standard output is what failed
        with suppress(OSError):
            printing.error(error, as_json=False)
    return error.exit_code


def _hush(output: TextIO | None = None) -> None:
    """Nobody reads our output: redirect it, or Python would flush again at exit and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (output or sys.stdout).fileno())


def _of_the_disk(error: OSError) -> Misconfigured | None:
    """Disk errors, which are never a bug of ours: a disk that can't be written to."""
    if error.errno == errno.ENOENT and "temporary directory" in (error.strerror or ""):
        return Misconfigured("no temporary directory is writable", fix="Set TMPDIR to a writable directory.")
    said = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is exhausted",
        errno.EROFS: "the file system is read-only",
    }.get(error.errno or 0)
    if said is None:
        return None
    where = f"{error.filename} can't be written: " if error.filename else ""
    return Misconfigured(
        f"{where}{said}", fix="Free some space there, or choose another directory (TMPDIR, [daemon] state_dir)."
    )


def _usage(error: Exception) -> int:
    """A usage error in click's own words and our format; anything else is a bug of ours."""
    import typer

    if isinstance(error, typer.Abort):
        return _interrupted()
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, typer.BadParameter.__mro__[2]):  # ClickException, which typer doesn't export
        usage: Any = error
        return _shown_help(usage) if type(usage).__name__ == "NoArgsIsHelpError" else _told(_misused(usage))
    return _bug(error)


def _shown_help(usage: Any) -> int:
    """A group without a command: its help is the answer."""
    usage.show()
    return int(usage.exit_code)


def _misused(usage: Any) -> Invalid:
    said = " ".join(str(usage.format_message()).split()).rstrip(".")
    where = usage.ctx.command_path if getattr(usage, "ctx", None) is not None else "kbslurm"
    return Invalid(said[:1].lower() + said[1:], hint=f"Run: {where} --help")


def _bug(error: Exception) -> int:
    import json
    import tempfile
    import traceback

    if os.environ.get("KBSLURM_DEBUG"):
        raise error
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kbslurm-bug-", suffix=".txt", delete=False) as file:
            file.write(text)
        report = f"please report it with {file.name}; KBSLURM_DEBUG=1 shows the traceback here"
    except OSError:
        report = "KBSLURM_DEBUG=1 shows the traceback, which couldn't be saved to a file"
    said = f"this is a bug in kbslurm ({type(error).__name__})"
    if _wants_json():
        print(json.dumps({"error": {"kind": "Bug", "message": said, "hint": f"{report}."}}), flush=True)
        return EXIT_BUG
    print(f"error: {said}", file=sys.stderr)
    print(f" hint: {report}.", file=sys.stderr)
    return EXIT_BUG
