"""A problem as read from its task.yml or its one reference file: a value, with a digest that names its version."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kbslurm_eval.wire import Budget, Limits, Params

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
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ("test", "benchmark", "leaderboard", "profile")
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """What judges: the same digest, the same verdicts. Name, description, templates and warnings don't count."""
        told = dataclasses.asdict(self)
        for name in ("name", "description", "templates", "warnings", "gpus"):
            del told[name]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def as_json(problem: Problem) -> dict[str, Any]:
    """The value that the problem_version row keeps."""
    return dataclasses.asdict(problem)


def from_json(raw: Mapping[str, Any]) -> Problem:
    """The problem that `as_json` was given."""
    told = dict(raw)
    for name in ("runner_files", "tests", "benchmarks", "hidden", "gpus", "modes", "warnings"):
        told[name] = tuple(told[name])
    return Problem(**{**told, "limits": Limits(**told["limits"]), "budget": Budget(**told["budget"])})
