"""The Postgres store: one part per subject, sharing one connection pool."""

from __future__ import annotations

from typing import Self

from kbslurm.store.archives import Archives
from kbslurm.store.artifacts import Artifacts
from kbslurm.store.attempts import Attempts
from kbslurm.store.boards import Boards
from kbslurm.store.calibrations import Calibrations
from kbslurm.store.connect import Pool
from kbslurm.store.contests import Contests
from kbslurm.store.costs import Costs
from kbslurm.store.erasing import Erasing
from kbslurm.store.events import Events
from kbslurm.store.finalisations import Finalisations
from kbslurm.store.finals import Finals
from kbslurm.store.gpu_budgets import GpuBudgets
from kbslurm.store.grades import Gradebook
from kbslurm.store.intake import Intake
from kbslurm.store.invites import Invites
from kbslurm.store.keepers import Keepers
from kbslurm.store.leases import Leases
from kbslurm.store.limits import Limits
from kbslurm.store.listening import Listener
from kbslurm.store.nicknames import Nicknames
from kbslurm.store.node_jobs import NodeJobs
from kbslurm.store.overview import Overview
from kbslurm.store.own_scores import OwnScores
from kbslurm.store.past_versions import PastVersions
from kbslurm.store.people import People
from kbslurm.store.places import Places
from kbslurm.store.problems import Problems
from kbslurm.store.publishing import Publishing
from kbslurm.store.questions import Questions
from kbslurm.store.queue import Queue
from kbslurm.store.rejudgings import Rejudgings
from kbslurm.store.roster import Roster
from kbslurm.store.rows import Rows
from kbslurm.store.runs import Runs
from kbslurm.store.scores import Scores
from kbslurm.store.settings import Settings
from kbslurm.store.shadows import Shadows
from kbslurm.store.sources import Sources
from kbslurm.store.standings import Standings
from kbslurm.store.submissions import Submissions
from kbslurm.store.times import Times
from kbslurm.store.tokens import Tokens


class PostgresStore(Rows):
    """All stored data, by subject. Thread-safe; connects when first needed.

    Database failures are BackendTrouble("database", …) if temporary and Misconfigured if an operator must act. After a
    server restart the next call works again.
    """

    def __init__(self, url: str) -> None:
        pool = Pool(url)
        super().__init__(pool)
        self._listener = Listener(url)
        self.events = Events(pool, self._listener)
        self.leases = Leases(pool)
        self.settings = Settings(pool)
        self.people = People(pool, self.events)
        self.tokens = Tokens(pool)
        self.roster = Roster(pool)
        self.erasing = Erasing(pool)
        self.problems = Problems(pool)
        self.boards = Boards(pool, self.problems)
        self.limits = Limits(pool, self.boards)
        self.gpu_budgets = GpuBudgets(pool)
        self.nicknames = Nicknames(pool)
        self.node_jobs = NodeJobs(pool)
        self.times = Times(pool, self.boards)
        self.invites = Invites(pool, self.boards)
        self.intake = Intake(pool, self.boards, self.problems)
        self.submissions = Submissions(pool)
        self.own_scores = OwnScores(pool)
        self.artifacts = Artifacts(pool)
        self.standings = Standings(pool, self.boards, self.events)
        self.past_versions = PastVersions(pool, self.boards)
        self.contests = Contests(pool)
        self.gradebook = Gradebook(pool)
        self.sources = Sources(pool)
        self.publishing = Publishing(pool)
        self.archives = Archives(pool)
        self.costs = Costs(pool, self.boards)
        self.queue = Queue(pool, self.costs, self.problems)
        self.finals = Finals(pool, self.boards, self.standings)
        self.finalisations = Finalisations(pool)
        self.attempts = Attempts(pool, self.problems, self.finals)
        self.scores = Scores(pool)
        self.calibrations = Calibrations(pool, self.problems)
        self.rejudgings = Rejudgings(pool, self.boards, self.problems)
        self.questions = Questions(pool)
        self.shadows = Shadows(pool, self.boards)
        self.places = Places(pool)
        self.keepers = Keepers(pool)
        self.runs = Runs(pool, self.costs)
        self.overview = Overview(pool, self.boards, self.gpu_budgets)

    @property
    def where(self) -> str:
        """The database's address, without user and password."""
        return self._pool.where

    @property
    def url(self) -> str:
        """The full URL with credentials: never show it."""
        return self._pool.url

    def server_version(self) -> str:
        """The server's version, like `18.4`. Raises if it can't be reached; the cheapest query there is."""
        found = self._one("SELECT current_setting('server_version') AS version")
        assert found is not None
        return str(found["version"]).split()[0]

    def close(self) -> None:
        """Close the connections. The store can't be used afterwards."""
        self._listener.end()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
