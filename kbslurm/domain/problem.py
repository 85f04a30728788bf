"""A problem as read from its task.yml or its one reference file: a value, with a digest that names its version."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kbslurm_eval.shared.wire import Budget, Build, Limits, Params

Lang = Literal["py", "cu"]
Style = Literal["modern", "one-file"]
RankingBy = Literal["last", "mean", "geom"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is judged and how. `files` are texts by name, the submission's own file not among them.

    `files` named in `runner_files` may be seen by the submission; the rest (the reference, and what only it imports)
    stays with the judge. `hidden` are cases that only ever run under the secret seed of a run.
    """

    name: str
    lang: Lang = "py"
    style: Style = "modern"
    description: str = ""
    files: Mapping[str, str]
    runner_files: tuple[str, ...] = ()
    reference: str = "reference.py"
    entry: str = "submission.py"
    config: Mapping[str, Any] = field(default_factory=dict)
    tests: tuple[Params, ...]
    benchmarks: tuple[Params, ...] = ()
    hidden: tuple[Params, ...] = ()
    seed: int | None = None
    ranking_by: RankingBy = "last"
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
    build: Build = field(default_factory=Build)
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ("test", "benchmark", "leaderboard", "profile")
    warnings: tuple[str, ...] = ()

    @property
    def baseline(self) -> str | None:
        """The trusted submission that every measurement is paired with; None: scores are raw times, unpaired."""
        found = self.config.get("baseline")
        return found if isinstance(found, str) else None

    @property
    def world_size(self) -> int:
        """How many ranks, and so GPUs, one run of it has."""
        found = self.tests[0].get("world_size") if self.multi_gpu and self.tests else None
        return found if isinstance(found, int) else 1

    @property
    def digest(self) -> str:
        """What judges: the same digest, the same verdicts. Name, description, templates and warnings don't count."""
        told = dataclasses.asdict(self)
        for name in ("name", "description", "templates", "warnings", "gpus"):
            del told[name]
        if self.build == Build():  # as it was before there were builders
            del told["build"]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def as_json(problem: Problem) -> dict[str, Any]:
    """The value that the problem_version row keeps."""
    return dataclasses.asdict(problem)


def from_json(raw: Mapping[str, Any]) -> Problem:
    """The problem that `as_json` was given."""
    told = dict(raw)
    for name in ("runner_files", "tests", "benchmarks", "hidden", "gpus", "modes", "warnings"):
        told[name] = tuple(told[name])
    built = {
        "limits": Limits(**told["limits"]),
        "budget": Budget(**told["budget"]),
        "build": Build(**told.get("build", {})),
    }
    return Problem(**{**told, **built})
