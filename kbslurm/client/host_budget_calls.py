"""The hosts' calls about budgets in GPU-hours at home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kbslurm.client.connection import Connection, part


class HostBudgetCalls(Connection):
    """The hosts' calls about budgets."""

    def budgets(self, course: str) -> Mapping[str, Any]:
        """A course's budgets, and what it, its sections and its people have used of them."""
        found: Mapping[str, Any] = self._get(f"/admin/courses/{part(course)}/budgets")
        return found

    def set_budget(
        self,
        course: str,
        gpu_hours: float | None,
        *,
        section: str | None = None,
        person: str | None = None,
        each: Literal["section", "person"] | None = None,
        gpu: str | None = None,
        begins: str | None = None,
        until: str | None = None,
    ) -> Mapping[str, Any]:
        """Set how many GPU-hours at home a course may use, or a section, a person, or each of them; None takes the
        budget away."""
        wanted = {
            "gpu_hours": gpu_hours,
            "section": section,
            "person": person,
            "each": each,
            "gpu": gpu,
            "begins": begins,
            "until": until,
        }
        found: Mapping[str, Any] = self._told("PUT", f"/admin/courses/{part(course)}/budgets", json=wanted)
        return found
