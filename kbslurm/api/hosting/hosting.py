"""Everything that a host can do, by subject, in one value."""

from __future__ import annotations

from kbslurm.api.hosting.entry import EntryActs
from kbslurm.api.hosting.measuring import MeasuringActs
from kbslurm.api.hosting.operations import OperationActs
from kbslurm.api.hosting.people import PeopleActs
from kbslurm.api.hosting.problems import ProblemActs
from kbslurm.api.hosting.status import StatusActs


class Hosting(ProblemActs, EntryActs, PeopleActs, MeasuringActs, OperationActs, StatusActs):
    """A host at work in the database. `kbslurm.client` does the same over HTTP."""
