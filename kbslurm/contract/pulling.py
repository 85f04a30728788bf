"""A board's problem, to work on at home."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from kbslurm.contract.base import Id, Shape


class ImageTold(Shape):
    """The image that runs on a GPU type have, where a place says: its name, its pin, and what is known to be in it."""

    place: str
    image: str
    digest: str | None
    packages: list[str]


class PulledProblem(Shape):
    """What a board's submissions are judged by, as far as it may leave: no seed, no hidden case.

    `version` is the board's; `digest` is that of `content`, not the version's. `hidden`: whether there are hidden
    cases, by GPU type. `content` is the problem; its files are those that submissions see, and with
    `publishes_reference` also the judge's and the baseline. `harness` is the digest of the harness that judges.
    `baseline_s`: what the baseline took here for each ranked benchmark, by GPU type, where the board is calibrated.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "problem": "transpose",
                "version": 3,
                "digest": "3f1c…",
                "description": "Transpose a matrix.",
                "gpu_types": ["H100"],
                "publishes_reference": True,
                "hidden": {"H100": True},
                "content": {"name": "transpose", "lang": "py", "files": {"task.py": "…"}},
                "harness": "9a41…",
                "images": {
                    "H100": [
                        {"place": "della", "image": "cuda.sif", "digest": "sha256:…", "packages": ["torch==2.8.0"]}
                    ]
                },
                "baseline_s": {"H100": [0.0012, 0.0044]},
            }
        },
    )
    leaderboard: str
    problem: str
    version: Id
    digest: str
    description: str
    gpu_types: list[str]
    publishes_reference: bool
    hidden: dict[str, bool]
    content: dict[str, Any]
    harness: str
    images: dict[str, list[ImageTold]]
    baseline_s: dict[str, list[float]]
