"""A problem as read from its task.yml or single reference file: a value, with a digest that identifies its version."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kbslurm_eval.shared.time_limits import rivals_of
from kbslurm_eval.shared.wire import Budget, Build, Limits, Params

Lang = Literal["py", "cu"]
Style = Literal["modern", "one-file"]
RankingBy = Literal["last", "mean", "geom"]
# "default": its author doesn't say, so cold; "before": a version from when nobody could say, which stays as it was
Cold = Literal["default", "yes", "no", "before"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is judged and how. `files` are texts by name, without the submission's own file.

    The submission may see the `files` named in `runner_files`; the rest (the reference, and what only it imports) stays
    with the judge. `hidden` are cases that only run with a run's secret seed. `cold`: whether a device's caches are
    flushed before each timed call. `inputs` is what trying generate_input came to when the problem was added:
    `checked`, `unchecked: why`, or nothing where it wasn't tried. `sizes`: other tests, benchmarks and hidden cases, by
    the GPU type that they are for.
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
    cold: Cold = "default"
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
    build: Build = field(default_factory=Build)
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ("test", "benchmark", "leaderboard", "profile")
    warnings: tuple[str, ...] = ()
    inputs: str = ""
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def baseline(self) -> str | None:
        """The trusted submission that every measurement is paired with; None: scores are raw times."""
        found = self.config.get("baseline")
        return found if isinstance(found, str) else None

    @property
    def memory_bytes(self) -> int:
        """What all submissions in one run may use together, on each rank: a baseline runs beside the submission, and
        may use as much. A final's limit is all its runners' already."""
        beside = self.baseline is not None and not rivals_of(self.config)
        return self.limits.memory_bytes * (2 if beside else 1)

    @property
    def is_cold(self) -> bool:
        """Whether a device's caches are flushed before each timed call."""
        return self.cold in ("default", "yes")

    @property
    def world_size(self) -> int:
        """The number of ranks, and so of GPUs, in one run."""
        found = self.tests[0].get("world_size") if self.multi_gpu and self.tests else None
        return found if isinstance(found, int) else 1

    def for_gpu(self, gpu: str) -> Problem:
        """The problem with the cases that it has on this GPU type."""
        lists = next((lists for name, lists in self.sizes.items() if name.lower() == gpu.lower()), None)
        if lists is None:
            return self
        mine = {"tests": self.tests, "benchmarks": self.benchmarks, "hidden": self.hidden}
        chosen = {name: tuple(lists.get(name, cases)) for name, cases in mine.items()}
        return dataclasses.replace(
            self, sizes={}, tests=chosen["tests"], benchmarks=chosen["benchmarks"], hidden=chosen["hidden"]
        )

    @property
    def digest(self) -> str:
        """A digest of everything that affects verdicts. Name, description, templates and warnings don't count.

        What its author doesn't say doesn't count either: a problem that hasn't changed is the same version after an
        update of kbslurm, and stays with the defaults of the day on which it was added.
        """
        told = dataclasses.asdict(self)
        for name in ("name", "description", "templates", "warnings", "gpus", "inputs"):
            del told[name]
        if self.cold in ("default", "before"):
            del told["cold"]
        if self.budget.precision == 0:
            del told["budget"]["precision"], told["budget"]["most_launches"]
        if self.build == Build():  # as before builders existed
            del told["build"]
        if not self.sizes:  # as before sizes existed
            del told["sizes"]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def as_json(problem: Problem) -> dict[str, Any]:
    """The value stored in the problem_version row."""
    return dataclasses.asdict(problem)


def from_json(raw: Mapping[str, Any]) -> Problem:
    """Read what `as_json` wrote."""
    told = {"cold": "before", **raw}
    for name in ("runner_files", "tests", "benchmarks", "hidden", "gpus", "modes", "warnings"):
        told[name] = tuple(told[name])
    built = {
        "limits": Limits(**told["limits"]),
        "budget": Budget(**told["budget"]),
        "build": Build(**told.get("build", {})),
    }
    return Problem(**{**told, **built})
