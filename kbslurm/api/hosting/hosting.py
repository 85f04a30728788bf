"""Everything that a host can do, by subject, in one value."""

from __future__ import annotations

from kbslurm.api.hosting.archiving import ArchivingActs
from kbslurm.api.hosting.budgets import BudgetActs
from kbslurm.api.hosting.comparing import ComparingActs
from kbslurm.api.hosting.courses import CourseActs
from kbslurm.api.hosting.database import DatabaseActs
from kbslurm.api.hosting.entry import EntryActs
from kbslurm.api.hosting.finalising import FinalisingActs
from kbslurm.api.hosting.grading import GradingActs
from kbslurm.api.hosting.measuring import MeasuringActs
from kbslurm.api.hosting.operations import OperationActs
from kbslurm.api.hosting.people import PeopleActs
from kbslurm.api.hosting.places import PlaceActs
from kbslurm.api.hosting.problems import ProblemActs
from kbslurm.api.hosting.publishing import PublishingActs
from kbslurm.api.hosting.questions import QuestionActs
from kbslurm.api.hosting.scripts import ScriptActs
from kbslurm.api.hosting.submissions import SubmissionActs
from kbslurm.api.hosting.times import TimeActs
from kbslurm.api.hosting.triage import TriageActs
from kbslurm.api.hosting.warm import WarmActs


class Hosting(
    ArchivingActs,
    ProblemActs,
    BudgetActs,
    ComparingActs,
    CourseActs,
    DatabaseActs,
    EntryActs,
    FinalisingActs,
    GradingActs,
    PeopleActs,
    QuestionActs,
    MeasuringActs,
    OperationActs,
    PublishingActs,
    PlaceActs,
    ScriptActs,
    SubmissionActs,
    TimeActs,
    TriageActs,
    WarmActs,
):
    """A host at work in the database. `kbslurm.client` does the same over HTTP."""
