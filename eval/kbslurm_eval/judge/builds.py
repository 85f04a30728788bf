"""The builder, as the judge sees it: a launch of its own that compiles and is gone before the first runner starts.

It is started like a runner, in the same cage: no secret, no network, no file of the machine's that it could write. What
it leaves comes through the link as bytes of one archive, in the form that `archive.py` fixes; the judge takes nothing
of it but plain files under plain names, within a bound, and their sha256 is in the report. It lays a fresh copy of them
beside each runner's link; the cage shows that copy read-only at /built. What else a builder did is gone with its cage.

A builder may spend its time on tables as well as on code, as much as fits in the bound: a submission could carry them
itself. It sees public cases only, under seeds that no runner meets.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kbslurm_eval.build import archive, recipes
from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.judge.reference import Case, Prepared, ProblemTrouble, Reference, derived_seed
from kbslurm_eval.judge.replies import Rejected
from kbslurm_eval.shared import layouts, remove_tree, values
from kbslurm_eval.shared.runner_link import BUILT_SUFFIX, PAGE, Kind, Status
from kbslurm_eval.shared.wire import Manifest, VerdictName

if TYPE_CHECKING:
    from kbslurm_eval.judge.replies import Reply

CACHE = "cache"
WARMED_CASES = 8  # a builder calls the submission on this many public cases, the smallest first
WARMED_SHARE = 0.5  # once this part of a builder's time is gone, on no further ones
EXCERPT_CAP = 900
# What compiles when it is imported or first called, and keeps what it made where we tell it to, as far as that can be
# seen in a text.
COMPILES = re.compile(
    r"\b(load_inline|cpp_extension|triton|tilelang|torch\.compile|cupy|numba|pycuda|cutlass|tvm|helion|warp|taichi"
    r"|KBSLURM_CACHE)\b"
)


class BuildFailed(Exception):
    """The build failed, and the run gets this verdict."""

    def __init__(self, verdict: VerdictName, said: str) -> None:
        super().__init__(said)
        self.verdict, self.said = verdict, said


class NoCompiler(RuntimeError):
    """This machine lacks the compiler, which isn't the submission's fault."""


class NoRoom(CantStart):
    """What a build left doesn't fit where runners' links lie."""


class Builder(Protocol):
    """The part of a launch that a build needs."""

    def ring(
        self,
        kind: Kind,
        payload: bytes,
        *,
        layout: layouts.Layout | None = None,
        late: bool = False,
        limit_s: float | None = None,
    ) -> Reply:
        """One message and its answer."""
        ...

    def load(self, manifest: Manifest) -> Reply:
        """Hand the submission over."""
        ...

    def call(self, prepared: Prepared) -> Reply:
        """One call of the submission."""
        ...

    def built(self) -> dict[str, Any]:
        """Where build results belong."""
        ...


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a builder left. `place` names the folder in which a Python submission finds it again, writable."""

    place: str
    native: bool
    files: tuple[archive.Entry, ...] = ()
    digest: str = ""
    took_s: float = 0.0

    @property
    def size(self) -> int:
        """How much memory a copy of it takes."""
        return sum(-(-len(entry.data) // PAGE) * PAGE for entry in self.files)

    def lay(self, link: Path) -> None:
        """A fresh copy beside a launch's link; nobody but the judge has written any of it. NoRoom if it doesn't fit."""
        home = link.with_name(link.name + BUILT_SUFFIX)
        try:
            self._laid(home)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            remove_tree.remove(home)
            told = os.statvfs(link.parent)
            raise NoRoom(
                f"there is no room for the {in_mib(self.size)} that its build left, which every runner has beside its"
                f" link: the memory of links ({link.parent}) has {in_mib(told.f_blocks * told.f_frsize)} in all"
            ) from None

    def _laid(self, home: Path) -> None:
        home.mkdir(mode=0o755)
        home.chmod(0o755)
        for folder in archive.folders(self.files):
            (home / folder).mkdir()
            (home / folder).chmod(0o755)
        for entry in self.files:
            file = home / entry.name
            file.write_bytes(entry.data)
            file.chmod(0o755 if entry.program else 0o644)
            os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))

    def cache(self, link: Path) -> Path:
        """The folder that holds that place (and a compiler's own files beside it) where there is no file system of the
        cage's own: made afresh for each launch."""
        home = link.parent / self.place
        remove_tree.remove(home)
        home.mkdir()
        home.chmod(0o777)
        return home

    def clear(self, link: Path, work: Path | None) -> None:
        """Remove it from beside that launch's link."""
        remove_tree.remove(link.with_name(link.name + BUILT_SUFFIX))
        if work is not None:
            remove_tree.remove(link.parent / self.place)

    def told(self, link: Path, work: Path | None) -> dict[str, Any]:
        """What the runner must know about it."""
        cache = None if work is None else str(link.parent / self.place / CACHE)
        return {"place": self.place, "cache": cache, "native": self.native, "library": recipes.LIBRARY}

    def facts(self) -> dict[str, Any]:
        """For the report."""
        size = sum(len(e.data) for e in self.files)
        return {"sha256": self.digest, "files": len(self.files), "bytes": size, "took_s": round(self.took_s, 3)}


@dataclass(kw_only=True)
class Builds:
    """Every build of one run: the submission's, the baseline's, and that of a reference in C++."""

    manifest: Manifest
    _built: dict[str, Built] = field(default_factory=dict)

    def wants(self, manifest: Manifest) -> bool:
        """Whether this source is built at all. A text that hides it from us only compiles in its runners, each."""
        if manifest.lang == "cu":
            return True
        match manifest.build.when:
            case "always":
                return True
            case "never":
                return False
            case "auto":
                return COMPILES.search(manifest.source) is not None

    def done(self, manifest: Manifest) -> Built | None:
        """This source's earlier build, if any."""
        return self._built.get(_key(manifest))

    def empty(self, manifest: Manifest) -> Built:
        """The empty place that a builder is started with."""
        return Built(place=_key(manifest), native=manifest.lang == "cu")

    def build(self, manifest: Manifest, builder: Builder, reference: Reference | None) -> Built:
        """Compile this source on this builder and take over what comes of it; Failed or NoCompiler otherwise."""
        began = time.monotonic()
        if manifest.lang == "cu":
            self._compiled(builder, recipes.recipe(manifest))
        else:
            assert reference is not None
            self._warmed(manifest, builder, reference)
        found = self._collected(manifest, builder)
        built = Built(
            place=_key(manifest),
            native=manifest.lang == "cu",
            files=found,
            digest=archive.digest(found),
            took_s=time.monotonic() - began,
        )
        self._built[built.place] = built
        return built

    def reference(self, builder: Builder) -> bytes:
        """The problem's own C++ as a library; it is trusted like a reference in Python. ProblemTrouble otherwise."""
        try:
            self._compiled(builder, recipes.reference_recipe(self.manifest))
            found = self._collected(self.manifest, builder)
        except BuildFailed as failed:
            raise ProblemTrouble(f"the problem's {self.manifest.reference} doesn't compile: {failed.said}") from None
        return next(e.data for e in found if e.name == recipes.LIBRARY)

    def facts(self) -> dict[str, Any]:
        """For the report: build results, by source."""
        mine = self._built.get(_key(self.manifest))
        return {} if mine is None else {"build": mine.facts()}

    @staticmethod
    def _compiled(builder: Builder, recipe: dict[str, Any]) -> None:
        reply = builder.ring(Kind.BUILD, values.pack({**recipe, **builder.built()}))
        match reply.status:
            case Status.OK:
                return
            case Status.NO_COMPILER:
                raise NoCompiler(_plain(reply.text))
            case Status.MEMORY:
                raise BuildFailed("memory", "the compiler ran out of memory")
            case _:
                raise BuildFailed("error", _plain(reply.text) or "it doesn't compile")

    def _warmed(self, manifest: Manifest, builder: Builder, reference: Reference) -> None:
        """Import it and call it on dummy inputs. What it answers doesn't matter here; the test phase tells."""
        reply = builder.load(manifest)
        if reply.status != Status.OK:
            verdict: VerdictName = "memory" if reply.status == Status.MEMORY else "error"
            raise BuildFailed(verdict, _plain(reply.text) or "it can't be imported")
        began = time.monotonic()
        public = [Case(index=n, params=params) for n, params in enumerate([*manifest.tests, *manifest.benchmarks])]
        for number, case in enumerate(sorted(public, key=_size)[:WARMED_CASES]):
            if number and time.monotonic() - began > WARMED_SHARE * manifest.build.limit_s:
                return  # the rest compile what they need in their runners
            try:
                builder.call(reference.prepare(case, derived_seed("dummy", manifest.nonce, case.index)))
            except Rejected as fault:
                fault.said = f"called on the case {case.spec}: {fault.said}"
                raise

    @staticmethod
    def _collected(manifest: Manifest, builder: Builder) -> tuple[archive.Entry, ...]:
        cap = manifest.build.output_bytes
        reply = builder.ring(Kind.COLLECT, values.pack({"cap": cap}))
        if reply.status == Status.TOO_LARGE:
            raise BuildFailed("error", f"the build left more than {cap >> 20} MiB")
        if reply.status == Status.NOT_BUILT:
            raise BuildFailed("error", _plain(reply.text) or "what was built can't be read")
        size = int(reply.text) if re.fullmatch(r"[0-9]{1,12}", reply.text) else 0
        if reply.status != Status.OK or not 0 < size <= archive.most(cap):
            raise BuildFailed("violation", "the builder wrote into the link's control words")
        layout = layouts.Layout(tree=["b", 0, size], size=size)
        try:
            reply = builder.ring(Kind.FETCH, values.pack(None), layout=layout)
        except ProblemTrouble as trouble:  # nothing else needs room here
            raise NoRoom(f"there is no room to take over the {in_mib(size)} that its build left: {trouble}") from None
        try:
            return tuple(archive.read(bytes(reply.out), cap))
        except archive.Broken as broken:
            raise BuildFailed("violation", f"the builder's output isn't valid: {broken}") from None


def _size(case: Case) -> float:
    """How large a case is, as far as its numbers show."""
    size = 1.0
    for name, value in case.params.items():
        if name != "seed":
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, int | float) and not isinstance(one, bool) and abs(one) > 1:
                    size *= abs(one)
    return size


def in_mib(size: int) -> str:
    """So many bytes, for people."""
    return f"{-(-size // (1 << 20))} MiB"


def one_line(text: str) -> str:
    """The compiler's first errors as one line that can be shown."""
    kept = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return kept if len(kept) <= EXCERPT_CAP else kept[: EXCERPT_CAP - 2] + " …"


def _plain(text: str) -> str:
    return one_line(text)


def _key(manifest: Manifest) -> str:
    """The name of a build: the same source in another role is another build."""
    # with the nonce, so that a submission can't tell its role from the folder's name
    role = manifest.config.get("role", "")
    told = f"{manifest.nonce}|{manifest.lang}|{manifest.entry}|{role}|{manifest.source}"
    return "kb-" + hashlib.sha256(told.encode()).hexdigest()[:16]
