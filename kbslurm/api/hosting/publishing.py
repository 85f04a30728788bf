"""Hosts' acts about publishing code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.api.published_code import rule_told
from kbslurm.domain import contest
from kbslurm.domain.access import CodeRule

LICENCE_CAP = 4000


class PublishingActs(HostActs):
    """Whose code a board publishes, and under which licence."""

    def code_rule(self, board: str) -> Mapping[str, Any]:
        """When a board's code is published, and under which licence."""
        return rule_told(self.store, self.held(board), None, self.now)

    def set_code_rule(self, board: str, rule: CodeRule, licence: str | None = None) -> Mapping[str, Any]:
        """Let this rule hold from now on; without a licence the one that was chosen before stays."""
        held = self.held(board)
        text = contest.within("licence", licence or "", LICENCE_CAP).strip()
        chosen = self.store.publishing.of_board(held.id).licence if licence is None else text
        self.store.publishing.set_rule(held.id, rule, chosen, by=self.by, now=self.now)
        return self.code_rule(held.name)
