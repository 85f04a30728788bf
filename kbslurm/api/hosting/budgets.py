"""Hosts' acts about budgets in GPU-hours at home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api.hosting.courses import CourseActs
from kbslurm.domain import contest, gpu_budgets
from kbslurm.domain.gpu_budgets import GpuBudget
from kbslurm.errors import Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.gpu_budgets import Each
    from kbslurm.store.views import Person


class BudgetActs(CourseActs):
    """How many GPU-hours at home a course, its sections and its people may use."""

    def budgets(self, course: str) -> Mapping[str, Any]:
        """A course's budgets, and what it, its sections and its people have used of them."""
        name = self.known_course(course)
        kept = self.store.gpu_budgets
        held = kept.held(name, self.now)
        currency = wiring.budget(self.config).currency
        return gpu_budgets.told(name, kept.of_course(name), held, self.now, currency=currency)

    def set_budget(
        self,
        course: str,
        gpu_hours: float | None,
        *,
        section: str | None = None,
        person: str | None = None,
        each: Each | None = None,
        gpu: str | None = None,
        begins: str | None = None,
        until: str | None = None,
    ) -> Mapping[str, Any]:
        """Set how many GPU-hours at home a course may use, or a section, a person, or each of them; None takes the
        budget away. What was used before counts."""
        name = self.known_course(course)
        if sum(one is not None for one in (section, person, each)) > 1:
            raise Invalid("a budget is of a section, of a person, or of each of them", hint="Choose one of these.")
        whom: Person | None = None
        if person is not None:  # who has left the roster may still have a budget to take away
            whom = self._on(name, person) if gpu_hours is not None else self.whom_in(name, person)
        budget = GpuBudget(
            course=name,
            scope="section" if section is not None else "person" if whom is not None else each or "course",
            section="" if section is None else self._section_in(name, section, gone=gpu_hours is None),
            person_id=None if whom is None else whom.id,
            person=None if whom is None else whom.name,
            gpu="" if gpu is None else self._gpu(name, gpu),
            gpu_s=0.0 if gpu_hours is None else gpu_budgets.hours(gpu_hours) * gpu_budgets.HOUR_S,
            begins_at=None if begins is None else gpu_budgets.moment(begins, "from"),
            ends_at=None if until is None else gpu_budgets.moment(until, "until"),
        )
        if gpu_hours is None:
            self.store.gpu_budgets.clear(budget, by=self.by, now=self.now)
        else:
            gpu_budgets.check_order(budget.begins_at, budget.ends_at, self.now)
            self.store.gpu_budgets.put(budget, by=self.by, now=self.now)
        return self.budgets(name)

    def _section_in(self, course: str, text: str, *, gone: bool) -> str:
        """The section as the roster writes it; NotFound if nobody is in it, unless its budget is to be taken away."""
        wanted = contest.within("section", text, contest.NAME_CAP).strip()
        people = self.store.roster.of_course(course, everyone=True)
        known = sorted({one.section for one in people if one.section is not None})
        found = next((one for one in known if one.lower() == wanted.lower()), None)
        if not gone and found is None:
            hint = None if known else "The course has no sections; kbslurm roster import brings them."
            raise NotFound(f"section of course {course}", wanted, known=known, hint=hint)
        return found or wanted

    def _gpu(self, course: str, text: str) -> str:
        """The GPU type as the course's boards write it, or an earlier budget; NotFound if none of them does."""
        boards = next((one.boards for one in self.store.roster.courses() if one.name == course), ())
        types = {gpu for board in boards for gpu in self.store.boards.get(board).gpus}
        types |= {one.gpu for one in self.store.gpu_budgets.of_course(course) if one.gpu}
        return contest.known_gpu(text, sorted(types)) if types else contest.gpu_name(text)
