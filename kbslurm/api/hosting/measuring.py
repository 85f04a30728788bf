"""Hosts' acts that order measurements: rejudges, finals, shadow runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api.hosting import warm
from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import contest
from kbslurm.domain.moves import moves
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm.flow import rejudge
from kbslurm.store.rejudgings import Wanted

if TYPE_CHECKING:
    from kbslurm.store.finals import Final
    from kbslurm.store.views import Board

USUAL_TOP = 5


class MeasuringActs(HostActs):
    """Rejudges, finals and shadow runs of a board."""

    def rejudge_preview(self, board: str, chosen: Sequence[str] = (), version: int | None = None) -> Mapping[str, Any]:
        """The state of the board's open rejudge; if there is none, order one."""
        held = self.held(board)
        wanted = self._wanted(held, chosen)
        found = self.store.rejudgings.preview(held.name, wanted, version, by=self.by, now=self.now)
        return found.told("preview")

    def rejudge_open(self, board: str) -> Mapping[str, Any] | None:
        """The board's open rejudge, and by GPU type who moves where once it is applied; None without one."""
        held = self.held(board)
        found = self.store.rejudgings.open(held.name)
        if found is None:
            return None
        standings = self.store.standings
        moved = {
            gpu: moves(
                standings.unfixed(held.name, gpu),
                standings.rejudged(held.name, gpu, rejudging=found.id, version=found.version),
            )
            for gpu in held.gpus
        }
        return {
            **found.told("preview"),
            "live": found.live,
            "ordered_by": found.created_by,
            "ordered_at": found.created_at.isoformat(),
            "moves": [
                {"gpu": gpu, "places": len(rows), "moves": [one.told() for one in rows if one.moves]}
                for gpu, rows in moved.items()
            ],
        }

    def rejudge_estimate(self, board: str, chosen: Sequence[str] = (), version: int | None = None) -> Mapping[str, Any]:
        """What a rejudge of these runs would cost and how long it would take, by what they took before."""
        held = self.held(board)
        number, rows = self.store.rejudgings.estimate(held.name, self._wanted(held, chosen), version)
        allowed, offers = warm.allowed(self.config), wiring.offers(self.config)
        told_rows = []
        for row in rows:
            place = next((offer.name for offer in offers if row["gpu"] in offer.gpus), None)
            spot = (place or "", row["gpu"])
            slots = wiring.slots_at(self.config, *spot) if place else 0
            facts = self.store.keepers.facts(*spot, self.now)
            priced = self.config.policy.places.get(place or "")
            price = priced.cost_per_gpu_hour.get(row["gpu"], 0.0) / 3_600.0 if priced else 0.0
            workers = 0 if held.cold or spot not in allowed else allowed[spot].max
            told_rows.append(
                {
                    "gpu": row["gpu"],
                    "place": place,
                    "runs": row["runs"],
                    "gpu_s": row["gpu_s"],
                    "money": row["gpu_s"] * price,
                    **rejudge.durations(row["runs"], row["run_s"], slots, facts.cold_s, workers),
                }
            )
        return {
            "board": held.name,
            "version": number,
            "runs": sum(row["runs"] for row in rows),
            "gpu_s": sum(row["gpu_s"] for row in told_rows),
            "money": sum(row["money"] for row in told_rows),
            "currency": self.config.policy.budget.currency,
            "rows": told_rows,
        }

    def _wanted(self, board: Board, chosen: Sequence[str]) -> Wanted:
        """The selection as the store takes it, with the person's number."""
        filtered = rejudge.parsed(chosen)
        return Wanted(
            submission=filtered.submission,
            gpu=filtered.gpu,
            verdict=filtered.verdict,
            mode=filtered.mode,
            person=self.whom_at([board], filtered.person).id if filtered.person else None,
        )

    def rejudge_apply(self, board: str) -> Mapping[str, Any]:
        """Make all new verdicts of the open rejudge count, and its version live."""
        return self.store.rejudgings.apply(self.held(board).name, by=self.by, now=self.now).told("applied")

    def rejudge_cancel(self, board: str) -> Mapping[str, Any]:
        """Discard the open rejudge."""
        return self.store.rejudgings.cancel(self.held(board).name, by=self.by, now=self.now).told("cancelled")

    def finals(self, board: str) -> Sequence[Mapping[str, Any]]:
        """Of each GPU type the final that is open, and the last one that counts; orders none."""
        held, finals = self.held(board), self.store.finals
        rows = []
        for gpu in held.gpus:
            known, applied = finals.open(held.name, gpu), finals.applied(held.name, gpu, live=True)
            rows.append(
                {
                    "gpu": gpu,
                    "open": None if known is None else told(known, "open"),
                    "applied": None if applied is None else told(applied, "applied"),
                }
            )
        return rows

    def final(self, board: str, gpu: str | None = None, top: int | None = None) -> Mapping[str, Any]:
        """The state of the board's open final; if there is none, order one with the `top` leaders."""
        held = self.held(board)
        kind = _only_gpu(held, gpu)
        known = self.store.finals.open(held.name, kind)
        if known is not None and top is not None:
            raise Invalid(
                f"a final of {held.name} on {kind} is open already",
                hint="Leave --top out to see it; --apply or --forget closes it.",
            )
        order = self.store.finals.order
        return told(known or order(held.name, kind, top or USUAL_TOP, by=self.by, now=self.now), "open")

    def final_apply(self, board: str, gpu: str | None = None) -> Mapping[str, Any]:
        """Make the final's scores count for those who took part."""
        held = self.held(board)
        found = self.store.finals.apply(held.name, _only_gpu(held, gpu), by=self.by, now=self.now)
        return told(found, "applied")

    def final_forget(self, board: str, gpu: str | None = None) -> Mapping[str, Any]:
        """Discard the final, killing its job if it is running."""
        held = self.held(board)
        kind = _only_gpu(held, gpu)
        submission = SubmissionId(self.store.finals.submission(held.name, kind))
        found = self.store.finals.forget(held.name, kind, by=self.by, now=self.now)
        self.store.submissions.cancel(submission, None, self.now)
        return told(found, "forgotten")

    def shadow(self, submission: int, place: str | None = None, *, cold: bool = False) -> Mapping[str, Any]:
        """Measure a submission again at another place, or `cold`: at the same place by a job of its own instead of in a
        warm worker. It never ranks, and it may cost money."""
        if (place is None) != cold:
            raise Invalid("where it is measured isn't clear", hint="Name a place, or ask for a job of its own.")
        if place is None:
            offered = [gpu for offer in wiring.offers(self.config) for gpu in offer.gpus]
            alone = self.store.shadows.order_cold(submission, offered, by=self.by, now=self.now)
            return {"submission": submission, "place": "", "cold": True, "runs": list(alone)}
        offers = {offer.name: offer.gpus for offer in wiring.offers(self.config)}
        if place not in offers:
            raise NotFound("place", place, known=list(offers))
        runs = self.store.shadows.order(submission, place, list(offers[place]), by=self.by, now=self.now)
        return {"submission": submission, "place": place, "cold": False, "runs": list(runs)}

    def shadow_places(self) -> Sequence[str]:
        """Where a submission can be measured again; nowhere if a place's configuration can't be read."""
        try:
            return [offer.name for offer in wiring.offers(self.config)]
        except KbslurmError:
            return []

    def shadows(self, board: str) -> Mapping[str, Any]:
        """The board's times at other places against those at home, from shadow runs."""
        held = self.held(board)
        rows = [
            {**dataclasses.asdict(row), "is_drift": None if row.drift is None else row.drift.is_drift}
            for row in self.store.shadows.of_board(held.name)
        ]
        return {"leaderboard": held.name, "places": rows}


def _only_gpu(board: Board, asked: str | None) -> str:
    if asked is not None:
        return contest.known_gpu(asked, board.gpus)
    if len(board.gpus) != 1:
        raise Invalid(
            f"board {board.name} has {len(board.gpus)} GPU types", hint=f"Pick one, for example --gpu {board.gpus[0]}."
        )
    return board.gpus[0]


def told(found: Final, state: str) -> dict[str, Any]:
    """A final as hosts see it."""
    return {
        "final": found.id,
        "board": found.board,
        "gpu": found.gpu,
        "state": state,
        "run_state": found.run_state.value,
        "reason": found.reason,
        "measured": found.is_done,
        "over": found.is_over,
        "unjudged": found.unjudged,
        "rivals": [
            {
                "place": rival.place,
                "person": rival.person,
                "submission": rival.submission_id,
                "before_s": rival.before_s,
                "verdict": rival.outcome.verdict if rival.outcome else None,
                "score_s": rival.outcome.score_s if rival.outcome else None,
                "interval_s": [rival.outcome.low_s, rival.outcome.high_s]
                if rival.outcome and rival.outcome.score_s is not None
                else None,
            }
            for rival in found.rivals
        ],
        "gaps": [
            {
                "ahead": found.rivals[gap.ahead].person,
                "behind": found.rivals[gap.behind].person,
                "ratio": gap.ratio,
                "interval": [gap.low, gap.high],
                "separated": gap.separated,
            }
            for gap in found.gaps
        ],
    }
