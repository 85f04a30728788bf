"""A site's folder of images, on this machine or behind its ssh login: what lies there, and how an image gets there.

An image arrives under a temporary name that holds its digest, so that an interrupted copy is continued, is verified
where it then lies, and is renamed last. Whatever had its name before keeps existing for a week under another one: a
running job may have it open, and not every file system keeps a file that only another machine has open.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from kbslurm.backends.slurm import ssh_login
from kbslurm.backends.slurm.commands import Answer, Commands
from kbslurm.domain.site import Site
from kbslurm.errors import BackendTrouble, Misconfigured, NotFound
from kbslurm.images.pins import LOCK, Pin, pin

Tell = Callable[[int], None]

LOOK_S = 60.0
LEAST_RATE = 10e6  # bytes per second that a file system reads at least, when an image there is verified
KEPT_DAYS = 7  # longer than a job that began before may run
_MISSING, _DIFFERS, _CLOSED, _NO_RSYNC, _A_FOLDER = 66, 65, 73, 72, 71
# --protect-args: otherwise, before 3.2.4, a shell there reads the path, whose characters may mean something to it.
_RSYNC = ("--protect-args", "--append-verify", "--perms", "--chmod=F644", "--info=progress2")
_TO_INSTALL = "Install rsync (3.1 or newer)"
_PERCENT = re.compile(rb"(\d+)%")
_HERE = ("local", "rest")  # slurmrestd wants the shared root mounted on this machine at the same path

_LIST = r"""
cd "$1" 2>/dev/null || exit 66
find . -maxdepth 1 -mindepth 1 ! -name '.*' -printf '%y\t%s\t%T@\t%f\n'
echo "== lock"
stat -c %Y digests.lock 2>/dev/null && cat digests.lock
exit 0
"""
_DIGEST = 'cd "$1" 2>/dev/null && [ -f "$2" ] || exit 66; sha256sum <"$2"'
_PREPARE = r"""
mkdir -p -- "$1" 2>/dev/null && [ -w "$1" ] || exit 73
[ ! -d "$1/$3" ] || exit 71
command -v rsync >/dev/null || { echo no rsync >&2; exit 72; }
there=0
[ ! -f "$1/$2" ] || there=$(stat -c %s "$1/$2")
free=$(df -Pk "$1" | awk 'NR == 2 { print $4 }')
echo "$there $free"
"""
_FINISH = r"""
cd "$1" && [ -f "$2" ] || exit 66
found=$(sha256sum <"$2") || exit 74
if [ "${found%% *}" != "$4" ]; then rm -f -- "$2"; echo "${found%% *}"; exit 65; fi
chmod a+r -- "$2" || exit 73
if [ -f "$3" ]; then
    before=".$3-was-$(stat -c %i "$3")"
    ln -f -- "$3" "$before" && touch -c -- "$before"
fi
mv -f -- "$2" "$3" || exit 73
find . -maxdepth 1 -name ".$3-was-*" -mtime +"$5" -exec rm -f -- {} +
find . -maxdepth 1 -name ".$3-*.part" -mtime +"$5" -exec rm -f -- {} +
"""
_WRITE = 'cd "$1" && umask 022 && cat >"$2" && mv -f -- "$2" "$3"'


@dataclass(frozen=True, kw_only=True)
class Lying:
    """A file or directory in the folder; `recorded`: its digest by the lock beside it, unless that is older than the
    file."""

    name: str
    bytes: int
    changed_at: datetime
    is_folder: bool
    recorded: str


class ImageFolder:
    """A folder of images at a site. BackendTrouble if the way to it is closed."""

    def __init__(self, site: Site, folder: PurePosixPath) -> None:
        self.site, self.folder = site, folder
        self._commands = Commands(site)

    @property
    def where(self) -> str:
        """Its place in words: host and path."""
        return str(self.folder) if self._is_here else f"{self.site.submit.host}:{self.folder}"

    @property
    def _is_here(self) -> bool:
        return self.site.submit.via in _HERE

    def lying(self) -> dict[str, Lying] | None:
        """What lies there by name, without hidden files; None if there is no such folder."""
        answer = self._sh(_LIST, str(self.folder), limit_s=LOOK_S)
        if answer.status == _MISSING:
            return None
        self._well(answer)
        listed, _, told = answer.out.partition("== lock\n")
        written, _, lock = told.partition("\n")
        pins = _digests_in(lock)
        found = {}
        for line in listed.splitlines():
            if line.count("\t") != 3:
                continue  # a login shell's greeting, or a name that no image has
            kind, size, changed, name = line.split("\t")
            found[name] = Lying(
                name=name,
                bytes=int(size),
                changed_at=datetime.fromtimestamp(float(changed), UTC),
                is_folder=kind == "d",
                recorded=pins.get(name, "") if float(changed) < float(written or 0) + 1 else "",
            )
        return found

    def digest(self, name: str, size: int) -> str | None:
        """The digest of a file there, computed there; None if there is none."""
        answer = self._sh(_DIGEST, str(self.folder), name, limit_s=_reading_s(size))
        if answer.status == _MISSING:
            return None
        self._well(answer)
        return f"sha256:{self._last_line(answer).split()[0]}"

    def bring(self, image: Path, name: str, digest: str, tell: Tell) -> None:
        """Copy a SIF with this digest there under this name, whole and verified or not at all. `tell` gets per cent."""
        bare = digest.removeprefix("sha256:")
        part = f".{name}-{bare[:16]}.part"
        size = image.stat().st_size
        self._prepare(part, name, size)
        self._copy(image, part, tell)
        answer = self._sh(_FINISH, str(self.folder), part, name, bare, str(KEPT_DAYS), limit_s=_reading_s(size))
        if answer.status == _DIFFERS:
            raise BackendTrouble(
                self.site.name,
                f"{name} arrived damaged at {self.where} (sha256:{answer.out.strip()}); it was removed there",
                hint="Push it again.",
            )
        self._well(answer)

    def record(self, name: str, found: Pin) -> None:
        """Write the image's pin into the lock there, keeping the others."""
        answer = self._sh('cat "$1/$2" 2>/dev/null || true', str(self.folder), LOCK, limit_s=LOOK_S)
        self._well(answer)
        with tempfile.TemporaryDirectory(prefix="kb-lock-") as place:
            file = Path(place) / LOCK
            file.write_text(answer.out, encoding="utf-8")
            try:
                pin(file, name, found)
            except Misconfigured:
                raise BackendTrouble(
                    self.site.name,
                    f"{self.where}/{LOCK} isn't one of ours, so the digest of {name} can't be noted in it",
                    hint="Move that file away, and push again; the image itself is there.",
                ) from None
            text = file.read_text(encoding="utf-8")
        written = self._sh(_WRITE, str(self.folder), f".{LOCK}-{name}", LOCK, limit_s=LOOK_S, told=text)
        self._well(written)

    def _prepare(self, part: str, name: str, size: int) -> None:
        answer = self._sh(_PREPARE, str(self.folder), part, name, limit_s=LOOK_S)
        if answer.status == _A_FOLDER:
            raise BackendTrouble(
                self.site.name,
                f"{self.where}/{name} is a directory, and a SIF can't take its place",
                hint="Give the image another name or an image_tag, or remove the directory when no job uses it.",
            )
        if answer.status == _NO_RSYNC:
            raise BackendTrouble(self.site.name, f"there is no rsync at {self._host}", hint=f"{_TO_INSTALL} there.")
        if answer.status == _CLOSED:
            raise BackendTrouble(
                self.site.name,
                f"{self.where} can't be written to",
                hint="Create it for this account, or correct image_dir in the site's file.",
            )
        self._well(answer)
        there, free_kib = (int(word) for word in self._last_line(answer).split())
        if size - there > free_kib * 1024:
            raise BackendTrouble(
                self.site.name,
                f"{self.where} has {free_kib * 1024 / 1e9:.1f} GB free, but {(size - there) / 1e9:.1f} GB are to come",
                hint="Make room there first; old images can go.",
            )

    def _copy(self, image: Path, part: str, tell: Tell) -> None:
        target = f"{self.folder}/{part}" if self._is_here else f"{self.site.submit.host}:{self.folder}/{part}"
        with self._remote_shell() as shell:
            argv = ["rsync", *_RSYNC, *shell, "--", str(image), target]
            try:
                child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            except FileNotFoundError:
                raise NotFound("rsync", "on this machine", hint=f"{_TO_INSTALL} here.") from None
            with child:
                try:
                    _follow(child, tell)
                    said = child.stderr.read().decode(errors="replace") if child.stderr else ""
                except BaseException:
                    child.kill()
                    raise
        if child.returncode:
            raise self._interrupted(child.returncode, said)

    def _interrupted(self, status: int, said: str) -> BackendTrouble:
        lapse = ssh_login.lapse_in(self.site.submit, ssh_login.FAILED if status == 255 else status, said)
        lines = [line for line in said.splitlines() if line.strip()]
        why = lapse or ("the disk there is full" if "No space left" in said else (lines or [f"status {status}"])[0])
        return BackendTrouble(
            self.site.name,
            f"the copy to {self.where} broke off: {why.strip()[:300]}",
            hint="Give the same command again: it goes on where this one stopped.",
        )

    @contextmanager
    def _remote_shell(self) -> Iterator[list[str]]:
        """How rsync gets there. A script of its own: rsync splits a command at blanks, whatever quotes it holds."""
        if self._is_here:
            yield []
            return
        with tempfile.TemporaryDirectory(prefix="kb-rsh-") as place:
            script = Path(place) / "rsh"
            script.write_text(f'#!/bin/sh\nexec {shlex.join(self._commands.ssh_argv()[:-1])} "$@"\n', encoding="utf-8")
            script.chmod(0o700)
            yield [f"--rsh={script}"]

    @property
    def _host(self) -> str:
        return "this machine" if self._is_here else self.site.submit.host

    def _sh(self, script: str, *arguments: str, limit_s: float, told: str | None = None) -> Answer:
        words = ["sh", "-c", script, "sh", *arguments]
        argv = words if self._is_here else [*self._commands.ssh_argv(), shlex.join(words)]
        return self._commands.run_argv("sh", argv, limit_s=limit_s, told=told)

    def _last_line(self, answer: Answer) -> str:
        """What a script printed last: a login shell's greeting comes before."""
        lines = answer.out.splitlines()
        if not lines:
            raise BackendTrouble(self.site.name, f"{self.where}: no answer", hint="Try it again.")
        return lines[-1]

    def _well(self, answer: Answer) -> None:
        """BackendTrouble unless it did what it was asked for."""
        if answer.status == 0:
            return
        lapse = ssh_login.lapse_in(self.site.submit, answer.status, answer.err)
        why = lapse or f"{self.where}: {(answer.err.strip() or f'status {answer.status}').splitlines()[0][:300]}"
        raise BackendTrouble(self.site.name, why, hint="Check that folder and account are right in the site's file.")


def _reading_s(size: int) -> float:
    return LOOK_S + size / LEAST_RATE


def _follow(child: subprocess.Popen[bytes], tell: Tell) -> None:
    """Pass on how far rsync says it is, until it closes its output."""
    assert child.stdout is not None
    while chunk := child.stdout.read1(4096):  # type: ignore[attr-defined]
        if found := _PERCENT.findall(chunk):
            tell(int(found[-1]))


def _digests_in(lock: str) -> Mapping[str, str]:
    """By image the digest that a lock records; nothing of one that can't be read."""
    try:
        told = tomllib.loads(lock).get("images", {})
        return {name: str(one["digest"]) for name, one in told.items()}
    except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError):
        return {}
