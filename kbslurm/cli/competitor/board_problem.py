"""A board's problem from the service in use, or from the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbslurm.cli.competitor.connect import reached
from kbslurm.cli.context import configuration, opened_store
from kbslurm.cli.lookup import board_named
from kbslurm.cli.service_in_use import in_use

if TYPE_CHECKING:
    from kbslurm.trial.pulled_board import PulledBoard


def board_problem(name: str) -> tuple[PulledBoard, Mapping[str, Any]]:
    """The problem, and what was sent. Public boards are for anybody, also without a token."""
    from kbslurm.trial.pulled_board import understood

    found = in_use()
    if found is None:
        from kbslurm.api.pulled_problem import pulled_told

        with opened_store() as store:
            told: Mapping[str, Any] = pulled_told(store, configuration(), board_named(store, name))
        return understood(told, None), told
    with reached(found.url, found.token, anybody=True) as client:
        told = client.problem_of(name)
    return understood(told, found.url), told
