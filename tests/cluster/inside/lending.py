"""A second service on the test cluster, with somewhere else to go: a GitHub on loopback that does the real workflow."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kbslurm.daemon.loop import Daemon
from kbslurm.domain.breaker import State
from kbslurm.domain.placement import Overflow, Rules
from kbslurm.domain.run import RunId
from kbslurm.domain.site import Site
from kbslurm.flow.place import Place
from tests.chaos.history import check
from tests.cluster.inside.walk import GOOD, PATIENCE_S, Walk, place_of, submission, walk_at
from tests.fakes.github import FakeGithub
from tests.fakes.github.lent import lent_for
from tests.flow.stage import QUICK, running

GPU = "H100"
# After a call that found no controller the site is left alone for twice this, long enough to see that more than one
# launch comes to nothing: else each try would be one more run of which nobody knows whether it was sent.
UNHURRIED_S = 4.0


@dataclass
class Lending:
    """Runs of a board whose home is the cluster and whose overflow is GitHub, used when home is down."""

    walk: Walk
    fake: FakeGithub
    daemon: Daemon
    people: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    def submit(self, count: int) -> list[RunId]:
        """So many people's runs."""
        text = submission(GOOD)
        return [self.walk.stage.submit(text, by=f"p{next(self.people)}", gpus=[GPU]).run_ids[0] for _ in range(count)]

    def places(self, runs: Sequence[RunId]) -> Counter[str]:
        """Where these runs got their verdicts, which all passed; those without one aren't counted."""
        found = self.walk.stage.rows(
            "SELECT a.backend, v.name FROM verdict v JOIN attempt a ON a.id = v.attempt_id WHERE v.run_id = ANY(%s)",
            list(runs),
        )
        assert {row["name"] for row in found} <= {"passed"}, [run.log.decode() for run in self.fake.runs]
        return Counter(row["backend"] for row in found)

    def perhaps_sent(self) -> int:
        """Of how many runs nobody knows whether the cluster has them."""
        (found,) = self.walk.stage.rows("SELECT count(*) AS n FROM attempt WHERE state = 'ambiguous'")
        return int(found["n"])

    def drained(self, runs: Sequence[RunId]) -> None:
        """All of them have their verdicts, but for what was perhaps sent home: that isn't sent anywhere else."""

        def is_so() -> bool:
            away = self.places(runs)
            assert set(away) <= {"github"}
            return away.total() > 0 and away.total() + self.perhaps_sent() == len(runs) == self._settled(runs)

        self.walk.stage.wait_until(is_so, patience_s=PATIENCE_S)

    def _settled(self, runs: Sequence[RunId]) -> int:
        (found,) = self.walk.stage.rows(
            "SELECT count(*) AS n FROM run WHERE id = ANY(%s) AND (ended_at IS NOT NULL OR EXISTS"
            " (SELECT FROM attempt a WHERE a.run_id = run.id AND a.state = 'ambiguous'))",
            list(runs),
        )
        return int(found["n"])

    def ended(self, runs: Sequence[RunId]) -> Counter[str]:
        """Where these ended, once all have."""
        self.walk.stage.wait_until(lambda: self.walk.stage.open_runs() == 0, patience_s=PATIENCE_S)
        found = self.places(runs)
        assert found.total() == len(runs)
        return found

    def works_again(self) -> None:
        """Its home has taken a run since."""
        home = next(lane for lane in self.daemon.lanes.values() if lane.place.role == "home")
        self.walk.stage.wait_until(lambda: home.breaker.state is State.CLOSED, patience_s=PATIENCE_S)

    def every_run_once(self) -> None:
        """Each run has one verdict, and was executed where that came from and nowhere else."""
        stage = self.walk.stage
        runs = [run["id"] for run in stage.runs()]
        assert stage.rows("SELECT run_id FROM verdict ORDER BY run_id") == [{"run_id": run} for run in runs]
        told = stage.rows("SELECT subject FROM event WHERE kind = 'run.scored' ORDER BY id")
        assert sorted(row["subject"] for row in told) == sorted(f"run:{run}" for run in runs)
        where = self.places(runs)
        claimed = [run for run in self.fake.runs if "is claimed\n" in run.log.decode()]
        assert (self.walk.claims(), len(claimed)) == (where["test"], where["github"])
        check(stage)


@contextmanager
def lending_at(url: str, folder: Path) -> Iterator[Lending]:
    """A board on a fresh database, its site and its GitHub below this folder, and a daemon that serves them."""
    with walk_at(url, folder) as walk, lent_for(GPU, folder / "github") as lent:
        away = Place(
            backend=lent.backend,
            role="overflow",
            classes={GPU: GPU},
            poll_s=0.3,
            grace_s=5.0,
            sweep_gap_s=0.5,
            patience_s=600.0,
        )
        home, _ = place_of(_unhurried(walk.site))
        rules = Rules(overflow=Overflow(when="when_down"))
        served = Daemon(walk.stage.store, [home, away], timing=dataclasses.replace(QUICK, breaker_s=1.0), rules=rules)
        with running(served):
            yield Lending(walk=walk, fake=lent.fake, daemon=served)


def _unhurried(site: Site) -> Site:
    return dataclasses.replace(site, poll=dataclasses.replace(site.poll, min_interval_s=UNHURRIED_S))
