"""The collections whose problems can be imported, and writing these as directories."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm.problems import loading
from kbslurm.problems.importing import flashinfer_bench, kernelbench, reference_kernels, tritonbench
from kbslurm.problems.importing.source import Files, Found

COLLECTIONS: Mapping[str, Callable[[Path], Iterator[Found]]] = {
    "kernelbench": kernelbench.found,
    "flashinfer-bench": flashinfer_bench.found,
    "reference-kernels": reference_kernels.found,
    "tritonbench": tritonbench.found,
}
RECORD = ".imported.json"  # the digests of what an import wrote, so that the next sees what was changed since
Status = Literal["new", "updated", "unchanged", "kept", "failed"]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of one problem. `kept`: the directory has changes that weren't made by an import. `large_on_cpu`: it
    has no small sizes for the type cpu, though it needs some."""

    name: str
    origin: str
    status: Status
    directory: Path
    why: str = ""
    warnings: tuple[str, ...] = ()
    large_on_cpu: bool = False

    @property
    def taken(self) -> bool:
        return self.status not in ("failed", "kept")


def chosen(collection: str, root: Path, only: str | None) -> list[Found]:
    """The problems of the collection below this folder whose name or place matches; Invalid if there are none."""
    if collection not in COLLECTIONS:
        raise NotFound("collection", collection, known=list(COLLECTIONS))
    every = list(COLLECTIONS[collection](root))
    if not every:
        raise Invalid(
            f"there is no problem of {collection} in {root.name}/", hint="Give the folder of the whole collection."
        )
    pattern = only if only is None or set(only) & set("*?[") else f"*{only}*"
    picked = [
        one for one in every if pattern is None or any(fnmatch.fnmatch(n, pattern) for n in (one.name, one.origin))
    ]
    if not picked:
        raise Invalid(f"none of the {len(every)} problems matches {only!r}", hint=f"One of them is {every[0].name}.")
    return _named_apart(picked)


def imported(found: Found, root: Path, out: Path, *, preview: bool = False, force: bool = False) -> Imported:
    """Make this problem's directory below `out`, unless it is there already. It is loaded before it is written."""
    place = out / found.name
    large = False

    def told(status: Status, why: str = "", warnings: tuple[str, ...] = ()) -> Imported:
        return Imported(
            name=found.name, origin=found.origin, status=status, directory=place, why=why, warnings=warnings,
            large_on_cpu=large,
        )  # fmt: skip

    try:
        texts = found.make()
        files, large = _as_bytes(texts), found.is_large(texts)
        warnings = _warnings(files, root)
    except KbslurmError as error:
        return told("failed", error.message)
    made = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    before = _recorded(place)
    if place.exists() and not force:
        changed = [name for name in sorted({*before, *made}) if _changed(place / name, before.get(name))]
        if changed:
            what = "it was changed since it was imported" if before else "a directory that no import made is there"
            return told("kept", f"{what} ({changed[0]}); --force writes it again")
    if before == made and all((place / name).is_file() and not _changed(place / name, made[name]) for name in made):
        return told("unchanged", warnings=warnings)
    if not preview:
        _write(place, files, made, set(before) - set(made))
    return told("updated" if before else "new", warnings=warnings)


def _named_apart(found: list[Found]) -> list[Found]:
    seen: dict[str, int] = {}
    apart = []
    for one in found:
        seen[one.name] = number = seen.get(one.name, 0) + 1
        name = one.name if number == 1 else f"{one.name[:60]}-{number}"
        apart.append(replace(one, name=name))
    return apart


def _as_bytes(files: Files) -> dict[str, bytes]:
    return {name: one.read_bytes() if isinstance(one, Path) else one.encode() for name, one in files.items()}


def _warnings(files: Mapping[str, bytes], root: Path) -> tuple[str, ...]:
    """What loading them says; Invalid if they aren't a problem. Places are told without our temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kbslurm-import-") as folder:
        place = Path(folder).resolve() / "problem"
        for name, data in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        try:
            warnings = loading.load(place, root=place).warnings
        except KbslurmError as error:
            error.message = error.message.replace(f"{place}/", "").replace(f"{root}/", "")
            raise
        return tuple(one.replace(f"{place}/", "") for one in warnings)


def _recorded(place: Path) -> dict[str, str]:
    try:
        told = json.loads((place / RECORD).read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in told["files"].items()}
    except (OSError, ValueError, KeyError, AttributeError):
        return {}


def _changed(file: Path, digest: str | None) -> bool:
    """Whether writing this file would lose something that no import wrote."""
    if not file.is_file():
        return False
    return digest is None or hashlib.sha256(file.read_bytes()).hexdigest() != digest


def _write(place: Path, files: Mapping[str, bytes], made: Mapping[str, str], gone: set[str]) -> None:
    try:
        for name, data in files.items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_name(f".{file.name}.new")
            temporary.write_bytes(data)
            temporary.replace(file)
        for name in gone:
            (place / name).unlink(missing_ok=True)
        (place / RECORD).write_text(json.dumps({"files": dict(made)}, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise Invalid(
            f"{place} can't be written: {error.strerror or error}", hint="Choose another folder with --out."
        ) from None
