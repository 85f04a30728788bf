"""Hosts' acts about problems: add, list, show, and boards from a repository of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.boards import BoardActs, Loaded
from kbslurm.config import shared_folders
from kbslurm.domain import contest
from kbslurm.domain import problem as values
from kbslurm.problems import sync
from kbslurm.trial.inputs import with_checked_inputs

TRYING_S = 90.0  # all inputs of a repository; a client waits 150 s for the whole

if TYPE_CHECKING:
    from kbslurm.domain.access import Visibility


class ProblemActs(BoardActs):
    """Problems and their versions."""

    def add_problem(self, sent: Loaded) -> Mapping[str, Any]:
        """Add a problem, or a new version of it."""
        found = with_checked_inputs(sent.problem, eval_dir=shared_folders.eval_dir())
        version = self.store.problems.add(found, by=self.by, now=self.now)
        return {
            "problem": found.name, "version": version, "digest": found.digest, "warnings": list(found.warnings),
            "inputs": found.inputs,
        }  # fmt: skip

    def problems(self) -> Sequence[Mapping[str, Any]]:
        """Every version of every problem."""
        return [
            {
                "id": one.id,
                "problem_id": one.problem_id,
                "name": one.name,
                "digest": one.digest,
                "created_at": one.created_at.isoformat(),
                "inputs": one.inputs,
            }
            for one in self.store.problems.all()
        ]

    def problem(self, name: str) -> Mapping[str, Any]:
        """The newest version of a problem. Hidden cases are counted, not shown."""
        return shown(self.newest_problem(name))

    def update_problems(
        self,
        repository: str,
        problem_set: str | None = None,
        *,
        branch: str | None = None,
        force: bool = False,
        visibility: Visibility = "public",
    ) -> Mapping[str, Any]:
        """Create and update boards from a repository of problems, read at one commit."""
        until_s = monotonic() + TRYING_S

        def tried(problem: values.Problem) -> values.Problem:
            left_s = until_s - monotonic()
            return with_checked_inputs(problem, eval_dir=shared_folders.eval_dir(), within_s=left_s)

        order = sync.Order(
            repository=repository,
            problem_set=problem_set,
            branch=branch,
            force=force,
            visibility=visibility,
            min_isolation=self.config.policy.ranked_min_isolation,
            gpus=self.offered(),
            check=self.check_memory,
            tried=tried,
            by=self.by,
        )
        came = sync.sync(self.store, order, self.now)
        warnings = [
            f"{name}: {warning}"
            for name in (*came.created, *came.updated)
            for warning in contest.unknown_gpus(self.store.boards.get(name).gpus, self.offered())
        ]
        return {
            "status": "ok",
            "commit": came.commit,
            "created": list(came.created),
            "updated": list(came.updated),
            "skipped": [{"name": name, "reason": reason} for name, reason in came.skipped],
            "errors": [{"name": name, "error": error} for name, error in came.errors],
            "warnings": warnings,
        }


def shown(problem: values.Problem) -> dict[str, Any]:
    """A problem as hosts see it: its files by name, its hidden cases by number."""
    told = {**values.as_json(problem), "hidden": len(problem.hidden), "digest": problem.digest}
    sizes = {
        gpu: {name: len(cases) if name == "hidden" else list(cases) for name, cases in lists.items()}
        for gpu, lists in problem.sizes.items()
    }
    return {**told, "files": sorted(problem.files), "sizes": sizes}
