"""Prints the part of the lock that a run-time installation needs, hashes and all. `python runtime_lock.py LOCK`.

Run by the environment that the whole lock was installed into: its metadata says what needs what.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(name: str, extras: frozenset[str] = frozenset(), seen: set[tuple[str, str]] | None = None) -> set[str]:
    """The canonical names of everything that a package needs on this machine, itself excluded."""
    seen = set() if seen is None else seen
    try:
        wanted = [Requirement(text) for text in requires(name) or ()]
    except PackageNotFoundError:
        return set()
    names: set[str] = set()
    for requirement in wanted:
        for extra in extras | {""}:
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            key = (canonicalize_name(requirement.name), ",".join(sorted(requirement.extras)))
            if needed and key not in seen:
                seen.add(key)
                names |= {key[0]} | closure(key[0], frozenset(requirement.extras), seen)
    return names


def blocks(lock: str) -> Iterator[tuple[str, str]]:
    """Each requirement of the lock with its lines."""
    block: list[str] = []
    for line in [*lock.splitlines(), "end=="]:
        if line and not line[0].isspace() and block:
            yield canonicalize_name(block[0].split("==")[0].strip().split("[")[0]), "\n".join(block)
            block = []
        block.append(line)


if __name__ == "__main__":
    wanted = closure("kbslurm")
    for name, text in blocks(Path(sys.argv[1]).read_text()):
        if name in wanted:
            print(text)
