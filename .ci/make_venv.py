"""Makes the virtual environment for `make venv`, reporting its progress.

    python3 .ci/make_venv.py .venv requirements.lock [CHECKOUT]

Standard library only: nothing is installed yet. On a terminal one line shows the progress; elsewhere a line comes every
fifteen seconds. If something fails, the last lines say what failed and what to try. Exit codes: 0 made, 2 failed.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

EVERY_S = 15.0
_PACKAGE = re.compile(r"^\s*(?:Collecting|Processing|Requirement already satisfied:) (\S+)")
# pip's errors and their remedies; the first match counts.
_REMEDIES = (
    (
        r"(?i)no space left|disk quota exceeded",
        "The disk is full. Free some space for this folder and {tmp}, or set TMPDIR to a folder with 2 GB free.",
    ),
    (
        r"(?i)do not match the hashes",
        (
            "The package index sent a different file than the one in the lock."
            " Try again; if that doesn't help, set PIP_INDEX_URL."
        ),
    ),
    (
        r"(?i)certificate verify failed|sslerror",
        "The index's certificate isn't trusted here. Behind a TLS-intercepting proxy, set PIP_CERT to its certificate.",
    ),
    (
        (
            r"(?i)failed to establish a new connection|name resolution|timed out"
            r"|connection (broken|reset|refused|aborted)|max retries|network is unreachable"
            r"|remotedisconnected|incompleteread"
        ),
        (
            "The download failed. Check the network, and HTTPS_PROXY or PIP_INDEX_URL if this machine needs them;"
            " completed downloads are kept."
        ),
    ),
    (
        r"(?i)no matching distribution|could not find a version",
        (
            "The package index doesn't have it, or not for this Python (3.11 to 3.14 is "
            "supported), or can't be reached. Check the network; another index: PIP_INDEX_URL."
        ),
    ),
    (
        r"(?i)permission denied|read-only file system",
        "This folder or {tmp} isn't writable. Clone into a folder of your own, or set TMPDIR.",
    ),
)
_ELSE = "See pip's output above."


class Line:
    """Progress: one line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._said_at = time.monotonic()
        self._wide = 0

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self.clear()
        print(f"venv: {text}", file=sys.stderr, flush=True)
        self._said_at = time.monotonic()

    def count(self, text: str) -> None:
        """Print a line that the next one replaces."""
        if self._terminal:
            shown = f"venv: {text}"[:100]
            print(f"\r{shown:<{self._wide}}", end="", file=sys.stderr, flush=True)
            self._wide = len(shown)
        elif time.monotonic() - self._said_at >= EVERY_S:
            self.say(text)

    def clear(self) -> None:
        if self._wide:
            print(f"\r{'':<{self._wide}}\r", end="", file=sys.stderr, flush=True)
            self._wide = 0


class Failed(Exception):
    """A failed step, with its output."""

    def __init__(self, step: str, printed: str) -> None:
        super().__init__(step)
        self.printed = printed


def make(place: Path, lock: Path, checkout: Path | None, line: Line) -> None:
    """Make the environment at `place` from the lock, plus the checkout itself if given."""
    began = time.monotonic()
    line.say(f"making {place} with Python {sys.version.split()[0]}; with all downloads this takes a few minutes")
    venv.EnvBuilder(with_pip=True, clear=place.exists()).create(place)
    pip = [str(place / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    wanted = len(re.findall(r"(?m)^[A-Za-z0-9].*==", lock.read_text()))
    line.say(f"downloading the packages in {lock.name}: at most {wanted}, about 150 MB unless pip has them cached")
    _install([*pip, "--progress-bar=off", "--require-hashes", "-r", str(lock)], place, wanted, line)
    if checkout is not None:
        here = [*pip, "--quiet", "--no-deps", "--no-build-isolation", "-e", str(checkout)]
        _run(here, "installing kbslurm", lambda _: None)
        # The harness's runners start with -B: none of them would ever keep what it compiled.
        compiling = [str(place / "bin/python"), "-m", "compileall", "-q", str(checkout / "eval")]
        _run(compiling, "compiling the harness", lambda _: None)
    line.say(f"ready ({time.monotonic() - began:.0f} s)")


def _install(argv: Sequence[str], place: Path, wanted: int, line: Line) -> None:
    fetched, installing = 0, threading.Event()

    def heard(text: str) -> None:
        nonlocal fetched
        if found := _PACKAGE.match(text):
            fetched += 1
            line.count(f"downloading {fetched} of at most {wanted}: {found[1]}")
        elif text.startswith("Installing collected packages:"):
            line.say(f"installing {fetched} packages")
            installing.set()

    over = threading.Event()
    counter = threading.Thread(target=_count_installed, args=(place, lambda: fetched, installing, over, line))
    counter.start()
    try:
        _run(argv, f"installing the packages in {Path(argv[-1]).name}", heard)
    finally:
        over.set()
        counter.join()


def _count_installed(
    place: Path, fetched: Callable[[], int], installing: threading.Event, over: threading.Event, line: Line
) -> None:
    """pip prints nothing while it unpacks, so count what has been installed so far."""
    while not over.wait(1.0):
        if installing.is_set():
            there = len(list(place.glob("lib/python3*/site-packages/*.dist-info"))) - 1  # except pip's own
            line.count(f"installing {min(max(0, there), fetched())} of {fetched()}")


def _run(argv: Sequence[str], step: str, heard: Callable[[str], None]) -> None:
    printed: list[str] = []
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    try:
        for text in process.stdout:
            printed.append(text)
            heard(text)
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.stdout.close()
        process.wait()
    if process.returncode != 0:
        raise Failed(step, "".join(printed))


def remedy(printed: str) -> str:
    """What to try, based on the output."""
    found = next((then for pattern, then in _REMEDIES if re.search(pattern, printed)), _ELSE)
    return found.format(tmp=tempfile.gettempdir())


def _told(step: str, printed: str) -> None:
    lines = [one.rstrip() for one in printed.splitlines() if one.strip()]
    errors = [one for one in lines if one.startswith(("ERROR", "error", "OSError"))] or lines
    for one in errors[-4:]:
        print(f"  {one[:300]}", file=sys.stderr)
    print(f"venv: {step} failed. {remedy(printed)} Then run make again.", file=sys.stderr)


def main(argv: Sequence[str]) -> int:
    place, lock = Path(argv[0]), Path(argv[1])
    line = Line()
    try:
        make(place, lock, Path(argv[2]) if len(argv) > 2 else None, line)
    except Failed as failed:
        line.clear()
        _told(str(failed), failed.printed)
        return 2
    except (OSError, subprocess.CalledProcessError) as trouble:
        line.clear()
        said = getattr(trouble, "output", None) or ""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        _told(f"making {place}", f"{trouble}\n{text}")
        return 2
    except KeyboardInterrupt:
        line.clear()
        print("venv: interrupted; the next make starts over", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
