"""Problems from git: a repository at one commit becomes boards and problem versions. Nothing outside it is read."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from kbslurm.domain.problem import Problem
from kbslurm.errors import BackendTrouble, Invalid, KbslurmError, Misconfigured, NotFound
from kbslurm.problems import problem_set
from kbslurm.problems.problem_set import ProblemSet, SetEntry

PATIENCE_S = 100
SETS = "problems"
CONFIG = "gitconfig"
_SHORTHAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+\Z")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}\Z")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{4,39}\Z")
_SET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}\Z")


@dataclass(kw_only=True)
class Synced:
    """The result for every problem. `skipped` and `errors` give reasons; `commit` is the one that was read."""

    commit: str
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be synced. `force` makes a changed problem live even on a board with submissions.

    `gpus` are for new boards whose problem and set name none. `check` raises if a problem can't run on these types,
    `tried` if its inputs can't be made; what that came to is in the problem that it gives back.
    """

    repository: str
    problem_set: str | None = None
    branch: str | None = None
    force: bool = False
    visibility: Literal["public", "closed"] = "public"
    min_isolation: int = 2
    gpus: tuple[str, ...] = ()
    check: Callable[[Problem, Sequence[str]], None] = lambda _problem, _gpus: None
    tried: Callable[[Problem], Problem] = lambda problem: problem
    by: str


class Board(Protocol):
    """What is needed from an existing board."""

    @property
    def name(self) -> str: ...
    @property
    def problem_name(self) -> str: ...
    @property
    def problem_digest(self) -> str: ...
    @property
    def gpus(self) -> tuple[str, ...]: ...
    @property
    def deadline_at(self) -> datetime | None: ...
    @property
    def submissions(self) -> int | None: ...


class Boards(Protocol):
    """The boards in the store."""

    def find(self, name: str, /) -> Board | None:
        """The board with this name, in any case."""

    def add(
        self,
        name: str,
        problem: Problem,
        /,
        *,
        gpus: Sequence[str],
        deadline_at: datetime | None,
        zone: str,
        visibility: Literal["public", "closed"],
        min_isolation: int,
        now: datetime,
    ) -> object:
        """Create a board on this problem."""

    def edit(
        self, board: str, /, *, by: str, description: str | None, gpus: Sequence[str] | None, now: datetime
    ) -> list[str]:
        """Change what is given and different; returns the names of what changed."""

    def set_deadline(self, board: str, deadline_at: datetime | None, zone: str, /, *, by: str, now: datetime) -> None:
        """Until when submissions are accepted."""

    def set_live(self, board: str, version: int, /, *, by: str, now: datetime) -> None:
        """Make the board rank by this version of its problem."""


class Versions(Protocol):
    """The problem versions in the store."""

    def add(self, problem: Problem, /, *, now: datetime) -> int:
        """The ID of the version with this problem's digest, created if needed."""


class Audit(Protocol):
    """The audit log."""

    def audit(self, by: str, act: str, subject: str, data: dict[str, Any], /, *, now: datetime) -> None:
        """Record a host's action."""


class Shelf(Protocol):
    """What a sync writes to."""

    @property
    def boards(self) -> Boards: ...
    @property
    def problems(self) -> Versions: ...
    @property
    def events(self) -> Audit: ...


def sync(store: Shelf, order: Order, now: datetime) -> Synced:
    """Create and update the boards of a repository's problem sets. A faulty problem doesn't hold up the others."""
    with checkout(order.repository, order.branch) as (root, commit):
        came = Synced(commit=commit)
        for file in _set_files(root, order.problem_set):
            try:
                found = problem_set.load_set(file, root=root)
            except KbslurmError as error:
                came.errors.append((file.stem, _said(error, root)))
                continue
            for entry, problem in problem_set.load_each(found):
                _take(store, order, found, entry, problem, came, root, now)
    store.events.audit(
        order.by,
        "update_problems",
        "problems",
        {"commit": came.commit, "created": came.created, "updated": came.updated, "errors": len(came.errors)},
        now=now,
    )
    return came


def _take(
    store: Shelf,
    order: Order,
    found: ProblemSet,
    entry: SetEntry,
    problem: Problem | KbslurmError,
    came: Synced,
    root: Path,
    now: datetime,
) -> None:
    if isinstance(problem, KbslurmError):
        came.errors.append((entry.name, _said(problem, root)))
        return
    try:
        held = store.boards.find(entry.name)
        if held is None or (_is_other(held, problem) and (order.force or not held.submissions)):
            problem = order.tried(problem)
        if held is None:
            _create(store, order, found, entry, problem, now)
            came.created.append(entry.name)
            return
        changed = _update(store, order, found, entry, problem, held, now)
        if changed:
            came.updated.append(entry.name)
        if _is_other(held, problem) and "problem" not in changed:
            why = f"its problem changed, but it has {held.submissions} submissions; force makes the new version live"
            came.skipped.append((entry.name, why))
        elif not changed:
            came.skipped.append((entry.name, "unchanged"))
    except KbslurmError as error:
        came.errors.append((entry.name, _said(error, root)))


def _create(store: Shelf, order: Order, found: ProblemSet, entry: SetEntry, problem: Problem, now: datetime) -> None:
    gpus = entry.gpus or problem.gpus or order.gpus
    order.check(problem, gpus)
    store.boards.add(
        entry.name,
        problem,
        gpus=gpus,
        deadline_at=entry.deadline,
        zone=found.zone,
        visibility=order.visibility,
        min_isolation=order.min_isolation,
        now=now,
    )


def _update(
    store: Shelf,
    order: Order,
    found: ProblemSet,
    entry: SetEntry,
    problem: Problem,
    held: Board,
    now: datetime,
) -> list[str]:
    """Update the board; returns the names of what changed."""
    gpus: Sequence[str] = entry.gpus or problem.gpus
    if _is_other(held, problem) and (order.force or not held.submissions):
        order.check(problem, gpus or held.gpus)
    changed = store.boards.edit(
        held.name, by=order.by, description=problem.description or None, gpus=gpus or None, now=now
    )
    if entry.deadline is not None and entry.deadline != held.deadline_at:
        store.boards.set_deadline(held.name, entry.deadline, found.zone, by=order.by, now=now)
        changed.append("deadline")
    if _is_other(held, problem) and (order.force or not held.submissions):
        if held.problem_name != problem.name:
            raise Invalid(f"board {held.name} uses problem {held.problem_name}, not {problem.name}")
        version = store.problems.add(problem, now=now)
        store.boards.set_live(held.name, version, by=order.by, now=now)
        changed.append("problem")
    return changed


def _is_other(held: Board, problem: Problem) -> bool:
    return held.problem_digest != problem.digest


def _set_files(root: Path, named: str | None) -> list[Path]:
    """The selected problem sets: one by name or path, or all in the folder."""
    if named is None or not named.strip():
        found = sorted([*(root / SETS).glob("*.yaml"), *(root / SETS).glob("*.yml")])
        if not found:
            raise NotFound("problem set", f"{SETS}/*.yaml", hint="Give the set's file in the repository.")
        return [_inside(root, file) for file in found]
    if not _SET.match(named) or ".." in Path(named).parts:
        raise Invalid(f"{named!r} isn't a valid problem set", hint=f"Give its name, as in {SETS}/NAME.yaml.")
    for place in (named, f"{named}.yaml", f"{SETS}/{named}", f"{SETS}/{named}.yaml", f"{SETS}/{named}.yml"):
        if (root / place).is_file():
            return [_inside(root, root / place)]
    known = [file.stem for file in (root / SETS).glob("*.y*ml")]
    raise NotFound("problem set", named, known=known)


def _inside(root: Path, file: Path) -> Path:
    place = file.resolve()
    if not place.is_relative_to(root):
        raise Invalid(f"{file.relative_to(root)} is outside the repository")
    return place


@contextmanager
def checkout(repository: str, branch: str | None) -> Iterator[tuple[Path, str]]:
    """The repository's files at one commit, as (folder, commit), as a context manager."""
    url = _url(repository)
    ref = (branch or "").strip() or "HEAD"
    if not _REF.match(ref) or ".." in ref:
        raise Invalid(f"{ref[:80]!r} isn't a valid branch")
    with tempfile.TemporaryDirectory(prefix="kbslurm-problems-") as folder:
        root = Path(folder).resolve() / "files"
        root.mkdir()
        # The server side of a local repository ignores our `-c`, but reads this: the folder may belong to anyone.
        (root.parent / CONFIG).write_text("[safe]\n\tdirectory = *\n")
        _git(root, "init", "--quiet")
        try:
            _git(root, "fetch", "--quiet", "--depth", "1", "--no-tags", "--no-recurse-submodules", url, ref)
        except Invalid as error:
            if _SHORT_COMMIT.match(ref.lower()) and "couldn't find remote ref" in error.message:
                raise Invalid(
                    f"the repository has no branch or tag {ref}, and a commit can't be asked for by its first digits",
                    hint="Give all 40 digits of the commit: git rev-parse in a clone, or its web page, has them.",
                ) from None
            raise
        _git(root, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        yield root, _git(root, "rev-parse", "HEAD").strip()


def commit_of(folder: Path) -> str:
    """The commit that this directory is at; empty if it isn't in a repository, or can't be read as one."""
    try:
        found = subprocess.run(
            ["git", "-c", f"safe.directory={folder}", "-C", str(folder), "rev-parse", "HEAD"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def is_local(repository: str) -> bool:
    """Whether it is among the server's own files."""
    return _url(repository).startswith("file://")


def url_of(repository: str) -> str | None:
    """The URL that this names: an https:// or file:/// URL, an absolute directory that exists, or OWNER/NAME."""
    text = repository.strip()
    if text.startswith(("https://", "file:///")):
        return text
    with suppress(OSError):  # for example a name that is too long for a file
        if (place := Path(text)).is_absolute() and place.is_dir():
            return f"file://{place.resolve()}"
    return f"https://github.com/{text}" if _SHORTHAND.match(text) else None


def _url(repository: str) -> str:
    if (found := url_of(repository)) is not None:
        return found
    raise Invalid(
        f"{repository.strip()[:200]!r} isn't a valid repository",
        hint="Use an https:// or file:/// URL, a directory on the server, or OWNER/NAME.",
    )


def _git(root: Path, *words: str) -> str:
    """git without a terminal, user configuration, hooks, foreign filters, or protocols that run programs."""
    argv = [
        "git",
        "-c",
        "protocol.allow=never",
        "-c",
        "protocol.https.allow=always",
        "-c",
        "protocol.file.allow=always",
    ]
    argv += ["-c", f"core.hooksPath={os.devnull}", "-C", str(root), *words]
    kept = {
        name: os.environ[name] for name in ("PATH", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE") if name in os.environ
    }
    env = {
        **kept,
        "GIT_CONFIG_GLOBAL": str(root.parent / CONFIG),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    try:
        said = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise Misconfigured("git isn't installed", fix="Install git.") from None
    except subprocess.TimeoutExpired:
        raise BackendTrouble("git", f"it took more than {PATIENCE_S} s", hint="Try again.") from None
    if said.returncode:
        lines = [line for line in said.stderr.splitlines() if line.strip()]
        why = next((line for line in lines if line.startswith("fatal: ")), lines[-1] if lines else str(said.returncode))
        raise Invalid(f"the repository can't be read: {why[:300]}")
    return said.stdout


def _said(error: KbslurmError, root: Path) -> str:
    return error.message.replace(f"{root}/", "").replace(str(root), "the repository")
