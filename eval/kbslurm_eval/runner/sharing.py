"""Python's locks and memory that processes share by name, for a runner that has no /dev/shm of its own (level 1).

The C library makes both in /dev/shm and nowhere else, where a file would outlive the run and other runs reach it:
Landlock keeps a runner out. So `multiprocessing` finds modules of ours in the place of the two that call the C library,
and they keep everything in the launch's own folder, which the judge removes and no other launch can open. This is no
part of the fence, which holds without it: it may be patched like all else in a runner.

Every Python that a submission starts finds them, too. C code that asks the C library itself still gets none; see
`isolation_hints`. Nothing is imported for who doesn't share.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kbslurm_eval.runner import named_files

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importing it takes as long as all of this

PYTHONS = ".python"
_signals = True


def install(place: str, *, signals: bool = True) -> None:
    """From here on what is shared by name lies below this folder, in this process and in those that it spawns.
    `signals`: whether they may signal each other."""
    global _signals
    if named_files.folder:  # a rank's first process did so before it forked
        return
    named_files.folder, _signals = os.path.join(place, named_files.FOLDER), signals
    _lend(place)
    sys.meta_path.insert(0, _Finder())
    for name, mend in _MENDED.items():
        if name in sys.modules:
            mend(sys.modules[name])


def _lend(place: str) -> None:
    """Interpreters that are started with this environment do what `install` did here before anything else."""
    folder = os.path.join(place, PYTHONS)
    try:
        os.mkdir(folder, 0o700)
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(_first(place))
    except OSError:  # done before, by whoever started us; or there is no room, and they go without
        return
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{others}" if others else folder


def _first(place: str) -> str:
    """The program that does what `install` did here."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    first = f"import sys; sys.path.insert(0, {here!r}); from {__name__} import install; sys.path.remove({here!r}); "
    return f"{first}install({place!r}, signals={_signals}); "


# --------------------------------------------------------------------------------------------- the two modules of ours


def _semaphores(module: ModuleType) -> None:
    from kbslurm_eval.runner import semaphores

    module.__dict__.update(SemLock=semaphores.SemLock, sem_unlink=semaphores.sem_unlink)
    module.__dict__["flags"] = {"HAVE_SEM_OPEN": 1, "HAVE_SEM_TIMEDWAIT": 1, "HAVE_FD_TRANSFER": 1}


def _memory(module: ModuleType) -> None:
    module.__dict__.update(shm_open=shm_open, shm_unlink=shm_unlink)


def shm_open(path: str, flags: int, mode: int = 0o777) -> int:
    """The descriptor of shared memory of this name."""
    return os.open(named_files.path_of("shm", path), flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def shm_unlink(path: str) -> None:
    """Nobody else finds it by this name any more."""
    os.unlink(named_files.path_of("shm", path))


# ------------------------------------------------------------------------------------------------ mended on the way in


def _spawn_with_ours(util: ModuleType) -> None:
    """Children that start as fresh interpreters, and the tracker of names, which is one, find the same."""
    spawned = util.spawnv_passfds

    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Any) -> Any:
        return spawned(path, _with_ours(list(args)), passfds)

    util.__dict__["spawnv_passfds"] = spawnv_passfds


def _with_ours(args: list[Any]) -> list[Any]:
    """The command line of an interpreter, whose program first does what `install` did here."""
    first = _first(os.path.dirname(named_files.folder))
    at = args.index("-c") + 1 if "-c" in args else len(args)
    return [*args[:at], *(first + program for program in args[at : at + 1]), *args[at + 1 :]]


def _no_server(context: ModuleType) -> None:
    """A server that forks, Python's default from 3.14 on, listens on a socket with a path, which isn't to be had at
    level 1 either. What it would fork starts as a fresh interpreter instead: slower, otherwise the same."""
    context.ForkServerProcess._Popen = staticmethod(context.SpawnProcess._Popen)


def _no_place_for_all(heap: ModuleType) -> None:
    """Numbers and arrays lie in unnamed files: of the launch's own folder when there is nothing better."""
    heap.Arena._dir_candidates = []


def _no_listener(resource_sharer: ModuleType) -> None:
    """A connection that is put into a queue would be fetched by a socket with a path. The thread that serves it says
    no more than this in the log, and whoever waits for the connection waits."""

    def register(*_: Any) -> Any:
        from kbslurm_eval.runner import isolation_hints

        raise PermissionError(errno.EPERM, f"a connection can't be sent by a queue here: {isolation_hints.SOCKETS}")

    resource_sharer._ResourceSharer.register = register


def _listen(process: ModuleType) -> None:
    if not _signals:
        from kbslurm_eval.runner import child_termination

        child_termination.listen(process)


def _ask(popen_fork: ModuleType) -> None:
    if not _signals:
        from kbslurm_eval.runner import child_termination

        child_termination.ask(popen_fork)


_OURS: dict[str, Callable[[ModuleType], None]] = {"_multiprocessing": _semaphores, "_posixshmem": _memory}
_MENDED: dict[str, Callable[[ModuleType], None]] = {
    "multiprocessing.util": _spawn_with_ours,
    "multiprocessing.context": _no_server,
    "multiprocessing.heap": _no_place_for_all,
    "multiprocessing.resource_sharer": _no_listener,
    "multiprocessing.process": _listen,
    "multiprocessing.popen_fork": _ask,
}


class _Finder:
    """First of all finders: modules of ours by name, and those of the library that are mended when they come."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Ours, the library's own with more to do after it, or none."""
        if fill := _OURS.get(name):
            return ModuleSpec(name, _Ours(fill))
        mend = _MENDED.get(name)
        spec = PathFinder.find_spec(name, path, target) if mend else None
        if mend and spec is not None and spec.loader is not None:
            spec.loader = _Mended(spec.loader, mend)
        return spec


class _Ours(Loader):
    def __init__(self, fill: Callable[[ModuleType], None]) -> None:
        self._fill = fill

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._fill(module)


class _Mended(Loader):
    def __init__(self, inner: Any, mend: Callable[[ModuleType], None]) -> None:
        self._inner, self._mend = inner, mend

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._inner  # who asks for its source later asks the library's
        self._inner.exec_module(module)
        self._mend(module)
