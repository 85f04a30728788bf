"""One attack on the served API, tried: what it gained, and what it left in the log."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from kbslurm.store import migrate
from tests import databases
from tests.adversarial.api_ground import Ground, Size, attacked

HERE = Path(__file__).resolve().parent / "api"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One file of the folder."""

    name: str
    tries: str
    attack: Callable[[Ground], None]


@dataclass
class Tried:
    """What came of it."""

    name: str
    size: Size
    faults: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    took_s: float = 0.0


def attacks(only: Sequence[str] = ()) -> list[Attack]:
    """All of them, or those with these names."""
    names = [path.stem for path in sorted(HERE.glob("[a-z]*.py"))]
    return [_read(name) for name in names if not only or name in only]


def _read(name: str) -> Attack:
    module = importlib.import_module(f"tests.adversarial.api.{name}")
    return Attack(name=name, tries=(module.__doc__ or "").partition("\n")[0], attack=module.attack)


def tried(attack: Attack, url: str, folder: Path, *, size: Size) -> Tried:
    """Run it against a service of its own on this database."""
    began = time.monotonic()
    with attacked(url, folder, size=size) as ground:
        attack.attack(ground)
        if ground.process.poll() is not None:
            ground.fault(f"the service ended with status {ground.process.returncode}")
        else:
            ground.must_answer("afterwards")
        ground.check_log()
    took_s = time.monotonic() - began
    return Tried(name=attack.name, size=size, faults=ground.faults, figures=ground.figures, took_s=took_s)


def all_tried(wanted: Sequence[Attack], *, size: Size, rounds: int = 1) -> Iterator[Tried]:
    """Each on a database of its own, on a server that ends with them."""
    with databases.server() as server:
        migrated = server.create()
        migrate.upgrade(migrated)
        for attack in [one for _ in range(rounds) for one in wanted]:
            url = server.create(databases.name_of(migrated))
            with TemporaryDirectory(prefix="kb-attack-") as folder:
                yield tried(attack, url, Path(folder), size=size)
            server.drop(url)
