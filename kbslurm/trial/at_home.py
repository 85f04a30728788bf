"""What a result at home is worth beside the board's: never official, and how far this machine is from the board's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbslurm.domain.measure import reference_times
from kbslurm.trial.pulled_board import PulledBoard
from kbslurm_eval.shared.wire import Report


@dataclass(frozen=True, kw_only=True)
class AtHome:
    """How a result here differs from the board's own. `drift`: what the baseline took here over what it took there, per
    ranked benchmark; empty if either isn't known. `changed`: files of the problem that aren't as they were pulled.
    `packages`: what is known to be in the images of the board's runs."""

    leaderboard: str
    version: int
    digest: str
    gpu: str
    hidden_left_out: bool
    harness_there: str
    harness_here: str
    drift: tuple[float, ...]
    changed: tuple[str, ...]
    packages: tuple[str, ...] = ()
    image: str = ""  # its digest, where it ran in one
    images_there: tuple[str, ...] = ()  # the pinned ones

    @property
    def same_image(self) -> bool | None:
        """Whether it ran in an image of the board's; None where it ran in none, or the board's isn't known."""
        return self.image in self.images_there if self.image and self.images_there else None

    @property
    def same_harness(self) -> bool:
        return self.harness_here == self.harness_there

    @property
    def ratio(self) -> float | None:
        """The geometric mean of the drift."""
        return math.exp(sum(map(math.log, self.drift)) / len(self.drift)) if self.drift else None


def at_home(board: PulledBoard, report: Report, gpu: str, changed: Sequence[str] = ()) -> AtHome:
    """Of a report of this machine about this board's problem."""
    there, here = board.baseline_s.get(gpu, ()), reference_times(report)
    known = len(there) == len(here) and all(math.isfinite(one) and one > 0 for one in (*there, *here))
    return AtHome(
        leaderboard=board.leaderboard,
        version=board.version,
        digest=board.digest,
        gpu=gpu,
        hidden_left_out=report.mode == "leaderboard" and board.hidden.get(gpu, False),
        harness_there=board.harness,
        harness_here=report.harness_digest,
        drift=tuple(mine / theirs for mine, theirs in zip(here, there, strict=True)) if known else (),
        changed=tuple(changed),
        packages=tuple(board.packages(gpu)),
        image=str(report.host.get("image_digest") or ""),
        images_there=tuple(str(one["digest"]) for one in board.images.get(gpu, ()) if one.get("digest")),
    )


def as_json(found: AtHome) -> dict[str, object]:
    """As `kbslurm try --json` has it."""
    return {
        "official": False,
        "board": found.leaderboard,
        "version": found.version,
        "digest": found.digest,
        "gpu": found.gpu,
        "hidden_left_out": found.hidden_left_out,
        "harness": {"board": found.harness_there, "here": found.harness_here, "same": found.same_harness},
        "drift": {"ratio": found.ratio, "by_benchmark": list(found.drift)} if found.drift else None,
        "changed": list(found.changed),
        "packages": list(found.packages),
        "image": {"board": list(found.images_there), "here": found.image or None, "same": found.same_image},
    }
