"""The hosts' calls: popcorn-cli's admin commands, and what the bot and the staff page need in addition.

Each requires a host's bearer token, and the audit log records each action with the host's name.
"""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import waiting
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.routes.hosts.archiving import add_archiving
from kbslurm.api.routes.hosts.boards import add_boards, add_export, add_uploads
from kbslurm.api.routes.hosts.budgets import add_budgets
from kbslurm.api.routes.hosts.comparing import add_comparing
from kbslurm.api.routes.hosts.courses import add_board_roles, add_courses
from kbslurm.api.routes.hosts.grading import add_grading
from kbslurm.api.routes.hosts.invites import add_invites
from kbslurm.api.routes.hosts.limits import add_limits
from kbslurm.api.routes.hosts.measuring import add_finals, add_rejudging, add_shadows
from kbslurm.api.routes.hosts.operations import add_operations
from kbslurm.api.routes.hosts.people import add_people, add_search
from kbslurm.api.routes.hosts.places import add_places
from kbslurm.api.routes.hosts.problems import add_problems
from kbslurm.api.routes.hosts.questions import add_questions
from kbslurm.api.routes.hosts.scripts import add_scripts
from kbslurm.api.routes.hosts.submissions import add_submissions
from kbslurm.api.routes.hosts.times import add_times
from kbslurm.api.routes.hosts.users import add_tokens, add_users
from kbslurm.api.routes.hosts.verifying import add_verifying
from kbslurm.api.routes.hosts.warm import add_warm

# In the order of the OpenAPI document.
SUBJECTS = (
    add_operations,
    add_submissions,
    add_boards,
    add_times,
    add_grading,
    add_comparing,
    add_limits,
    add_invites,
    add_people,
    add_uploads,
    add_verifying,
    add_scripts,
    add_rejudging,
    add_export,
    add_search,
    add_problems,
    add_users,
    add_tokens,
    add_finals,
    add_shadows,
    add_warm,
    add_places,
    add_courses,
    add_board_roles,
    add_budgets,
    add_questions,
    add_archiving,
)


def routes(context: Context, histories: waiting.Histories) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(prefix="/admin", tags=["hosts"], route_class=Door)
    for add in SUBJECTS:
        add(router, context, histories)
    return router
