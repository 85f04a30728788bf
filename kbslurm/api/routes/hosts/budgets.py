"""Budgets in GPU-hours at home: read by whoever runs a course, set by its owners."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping_on_course
from kbslurm.api.identity import Sender
from kbslurm.api.routes.hosts.courses import Course
from kbslurm.contract.budgets import Budgets, BudgetWanted


def add_budgets(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    path = "/courses/{course}/budgets"

    @router.get(path, responses=answers(Budgets, *HOSTS_FAILURES, 403))
    def budgets(course: Course, sender: Sender) -> Ascii:
        """A course's budgets in GPU-hours at home, and what it, its sections and its people have used of them. Also for
        assistants of the course."""
        return Ascii(helping_on_course(context, sender, course, "run").budgets(course))

    @router.put(path, responses=answers(Budgets, *HOSTS_FAILURES, 403))
    def put(course: Course, wanted: BudgetWanted, sender: Sender) -> Ascii:
        """Set how many GPU-hours at home a course may use, or a section, a person, or each of them; null takes the
        budget away. Also for owners of the course."""
        host = helping_on_course(context, sender, course, "own")
        return Ascii(
            host.set_budget(
                course,
                wanted.gpu_hours,
                section=wanted.section,
                person=wanted.person,
                each=wanted.each,
                gpu=wanted.gpu,
                begins=wanted.begins,
                until=wanted.until,
            )
        )
