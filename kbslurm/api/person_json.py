"""A person as JSON."""

from __future__ import annotations

from typing import Any

from kbslurm.store.views import Person


def person_told(person: Person) -> dict[str, Any]:
    """A person, as they and the hosts may see them."""
    return {
        "id": str(person.id),
        "name": person.name,
        "role": person.role,
        "team": person.team,
        "banned": person.banned_at is not None,
    }
