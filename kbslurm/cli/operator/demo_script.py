"""What the demo plays, from examples/demo.toml, and what to try after it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from kbslurm.cli.output import printing


@dataclass(frozen=True, kw_only=True)
class Play:
    """One submission of the script, and its expected verdict."""

    person: str
    file: Path
    gpus: tuple[str, ...]
    expect: str
    says: str


@dataclass(frozen=True, kw_only=True)
class Script:
    """What is played: examples/demo.toml."""

    board: str
    problem: Path
    gpus: tuple[str, ...]
    deadline: str
    zone: str
    plays: tuple[Play, ...]


def script() -> Script:
    """The script from examples/demo.toml."""
    from kbslurm.config import shared_folders

    base = shared_folders.path("examples")
    raw = tomllib.loads((base / "demo.toml").read_text())
    told = raw["board"]
    return Script(
        board=told["name"],
        problem=base / told["problem"],
        gpus=tuple(told["gpus"]),
        deadline=told["deadline"],
        zone=told["zone"],
        plays=tuple(
            Play(
                person=row["person"],
                file=base / row["file"],
                gpus=tuple(row["gpus"]),
                expect=row["expect"],
                says=row["says"],
            )
            for row in raw["submissions"]
        ),
    )


def say_next(problem: Path, *, again: str = "demo") -> None:
    """What to try next, as typed in the folder where the demo was started."""
    named, kbslurm = printing.path(problem), printing.command()
    printing.say("")
    printing.say("Next:")
    printing.say(f"  {kbslurm} try {named} YOUR_KERNEL.py      judge your own kernel here")
    printing.say(f"  {kbslurm} problem verify {named}      check a problem, as its author would")
    printing.say(f"  {kbslurm} {again:<12}                      another round")
