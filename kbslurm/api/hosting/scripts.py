"""Hosts' acts about scripts: run one on a GPU without a board, look at it and at earlier ones, cancel it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import scripts
from kbslurm.domain.run import OPEN_RUNS, SubmissionId
from kbslurm.errors import KbslurmError, NotFound, Refused
from kbslurm.flow.cancel import cancel
from kbslurm_eval.shared.scripts import exit_status

if TYPE_CHECKING:
    from kbslurm.domain.run import PersonId

LISTED_DAYS = 7


class ScriptActs(HostActs):
    """Scripts without a board."""

    def run_script(
        self,
        file_name: str,
        data: bytes,
        gpu: str,
        timeout_s: int = scripts.DEFAULT_S,
        place: str | None = None,
    ) -> Mapping[str, Any]:
        """Run a Python file on this GPU type, at this or any place, within the host's budget. It never ranks."""
        by_staff = self.person is None or self.person.is_staff
        source = scripts.checked_script(file_name, data)
        limit = scripts.checked_timeout(timeout_s)
        named, where = scripts.chosen_gpu(gpu, wiring.offers(self.config), place, staff=by_staff)
        number = self.store.scripts.order(
            self._author(),
            source,
            named,
            limit,
            self.config.policy.script_gpu_s_per_day,
            place=where,
            by_staff=by_staff,
            by=self.by,
            now=self.now,
        )
        return self.script(number)

    def script(self, number: int) -> Mapping[str, Any]:
        """A script's state and, once it has ended, its exit status and what it wrote. For its author and for hosts."""
        author = self.store.scripts.author(number)
        view = self.store.submissions.get(SubmissionId(number))
        run = view.runs[0]
        last, verdict = (run.attempts[-1] if run.attempts else None), run.verdict
        began, ended = (None, None) if last is None else (last.started_at, last.ended_at)
        spent = self.store.scripts.spent(author, self.now)
        host = (verdict.detail or {}).get("host") if verdict is not None else None
        return {
            "script": view.id,
            "file_name": view.file_name,
            "by": view.person,
            "gpu": run.gpu,
            "timeout_s": int(self.store.problems.of_version(run.problem_version_id).limits.test_s),
            "state": run.state.value,
            "done": view.is_done,
            "place": None if last is None else last.backend,
            "node": None if last is None else last.node,
            "attempts": len(run.attempts),
            "verdict": None if verdict is None else verdict.name,
            "exit_status": exit_status(host) if isinstance(host, Mapping) else None,
            "reason": run.reason if verdict is None else verdict.reason,
            "isolation": None if verdict is None else verdict.isolation,
            "output": scripts.output_of(None if verdict is None else verdict.detail),
            "took_s": None if began is None or ended is None else (ended - began).total_seconds(),
            "used_gpu_s": round(spent.used_s + spent.open_s, 1),
            "gpu_s_per_day": self.config.policy.script_gpu_s_per_day,
        }

    def scripts(self, *, mine: bool = False, limit: int, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        """The scripts of the last days, everybody's or one's own, newest first, without what they wrote."""
        found = self.store.scripts.listed(
            self.now - timedelta(days=LISTED_DAYS),
            person=self._author() if mine else None,
            limit=limit,
            offset=offset,
        )
        return [
            {
                "script": one.id,
                "file_name": one.file_name,
                "sha256": one.sha256,
                "by": one.by,
                "gpu": one.gpu,
                "timeout_s": int(one.timeout_s),
                "at": one.accepted_at,
                "state": one.state.value,
                "done": one.state not in OPEN_RUNS,
                "asked_place": one.pinned,
                "place": one.place,
                "node": one.node,
                "verdict": one.verdict,
                "exit_status": exit_status(one.host) if isinstance(one.host, Mapping) else None,
                "reason": one.reason,
                "took_s": one.took_s,
            }
            for one in found
        ]

    def script_outlook(self) -> Mapping[str, Any]:
        """What a script could use: the GPU types with the places that have them, and what is left of the day."""
        staff = self.person is None or self.person.is_staff
        try:
            offers = [one for one in wiring.offers(self.config) if one.is_for(staff=staff)]
        except KbslurmError:  # a place whose configuration can't be read; whoever runs a script there is told
            offers = []
        spent, most = self.store.scripts.spent(self._author(), self.now), self.config.policy.script_gpu_s_per_day
        used = spent.used_s + spent.open_s
        return {
            "gpus": {gpu: [one.name for one in offers if gpu in one.gpus] for one in offers for gpu in one.gpus},
            "places": [one.name for one in offers if one.gpus],
            "used_gpu_s": round(used, 1),
            "gpu_s_per_day": most,
            "left_gpu_s": max(0, int(most - used)),
        }

    def script_source(self, number: int) -> tuple[str, str]:
        """A script's file name and text, to run it again."""
        self.store.scripts.author(number)
        name, text = self.store.sources.text(number)
        if not text:
            raise NotFound("source of script", str(number), hint="It was deleted.")
        return name, text

    def cancel_script(self, number: int) -> Mapping[str, Any]:
        """Cancel a script: one that waits now, and one that runs is killed where it runs."""
        author = self.store.scripts.author(number)
        if self.person is not None and not self.person.is_staff and self.person.id != author:
            raise Refused(f"script {number} isn't yours", hint="Its author or staff can cancel it.")
        cancel(self.store.submissions, SubmissionId(number), None, self.now)
        self.store.events.audit(self.by, "script.cancel", f"submission:{number}", now=self.now)
        return self.script(number)

    def _author(self) -> PersonId:
        """Who owns it: the host, or the service itself where nobody says who that is."""
        if self.person is not None:
            return self.person.id
        return self.creator if self.creator is not None else self.store.people.service_person(now=self.now)
