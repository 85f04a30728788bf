"""A board's problem as its service hands it out, checked: a service that isn't trusted can't name files elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbslurm.domain.problem import Problem, from_json
from kbslurm.domain.source import Source, check_language
from kbslurm.errors import Invalid, Refused
from kbslurm.problems.folder import FILE_NAME

MARK = "kbslurm-board.json"
README = "README.md"
NOT_WRITTEN = (MARK, README.lower(), "kbslurm.toml", "conftest.py")  # what a tool reads by itself where it lies


@dataclass(frozen=True, kw_only=True)
class PulledBoard:
    """A board's problem as its service handed it out; `problem` has no hidden case, and its judge's files only if the
    board publishes them. `digest` is its digest, not the version's; `harness` that of the harness that judges."""

    leaderboard: str
    version: int
    digest: str
    description: str
    gpus: tuple[str, ...]
    publishes_reference: bool
    hidden: Mapping[str, bool]
    problem: Problem
    harness: str
    images: Mapping[str, Sequence[Mapping[str, Any]]]
    baseline_s: Mapping[str, Sequence[float]]
    service: str | None = None

    def gpu(self, asked: str | None) -> str:
        """The GPU type to judge as: the one that is asked for, else the board's first; Invalid if it has it not."""
        if asked is None:
            return self.gpus[0] if self.gpus else "cpu"
        for one in self.gpus:
            if one.lower() == asked.lower():
                return one
        raise Invalid(f"board {self.leaderboard} has no GPU type {asked}", hint=f"It has: {', '.join(self.gpus)}.")

    def packages(self, gpu: str) -> list[str]:
        """What is known to be in the images that run it on this GPU type, as `cuda.sif (torch==2.8.0)`."""
        return [f"{one['image']} ({', '.join(one['packages'])})" for one in self.images.get(gpu, ()) if one["packages"]]


def understood(told: Mapping[str, Any], service: str | None) -> PulledBoard:
    """The service's answer as a value; Invalid if it can't be understood."""
    try:
        problem = from_json(told["content"])
        found = PulledBoard(
            leaderboard=str(told["leaderboard"]),
            version=int(told["version"]),
            digest=str(told["digest"]),
            description=str(told["description"]),
            gpus=tuple(str(one) for one in told["gpu_types"]),
            publishes_reference=bool(told["publishes_reference"]),
            hidden={str(gpu): bool(there) for gpu, there in told["hidden"].items()},
            problem=problem,
            harness=str(told["harness"]),
            images={
                str(gpu): [{**one, "packages": [str(name) for name in one["packages"]]} for one in many]
                for gpu, many in told["images"].items()
            },
            baseline_s={str(gpu): [float(one) for one in many] for gpu, many in told["baseline_s"].items()},
            service=service,
        )
        texts: list[Any] = [*problem.files, *problem.files.values(), *problem.templates, *problem.templates.values()]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a file isn't text")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(
            f"this description of a board's problem can't be understood ({type(error).__name__})",
            hint="Use the same version of kbslurm as the service.",
        ) from None
    for name in (*problem.files, problem.entry, found.leaderboard):
        if not FILE_NAME.match(name) or name.lower() in NOT_WRITTEN:
            raise Invalid(f"the service names a file {name[:80]!r}, which isn't written here")
    shown = [found.leaderboard, *found.gpus, *found.images, *(text for many in found.images.values() for one in many
             for text in (str(one.get("place")), str(one.get("image")), *one["packages"]))]  # fmt: skip
    if not all(one.isprintable() for one in shown):
        raise Invalid("the service's answer has names that can't be shown on a terminal")
    return found


def check_can_judge(board: PulledBoard, source: Source) -> None:
    """Refused where the reference stays with the service: nothing here makes inputs or knows an answer."""
    check_language(source, board.problem.lang)
    if not board.publishes_reference:
        raise Refused(
            f"board {board.leaderboard} doesn't publish its reference, so nothing here can make its inputs or judge an"
            " answer",
            hint=f"Let the service check it: kbslurm submit FILE --board {board.leaderboard} --mode test --watch",
        )
