"""Hosts' acts that fix a board's standings: finals first, then what they came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import contest
from kbslurm.domain.board import Entry
from kbslurm.errors import Refused
from kbslurm.store.views import Board

if TYPE_CHECKING:
    from datetime import datetime

    from kbslurm.store.finals import Final

USUAL_TOP = 5


class FinalisingActs(HostActs):
    """Final standings."""

    def finalise(
        self, board: str, *, top: int | None = None, finals: bool = True, again: bool = False, note: str = ""
    ) -> Mapping[str, Any]:
        """Run the finals of a board that is over and fix its standings. While finals are running, say so and change
        nothing more: the next call goes on from there. `again`: fix them anew, from the verdicts as they are."""
        held = self.held(board)
        contest.within("note", note, contest.NOTE_CAP)
        if held.finalised_at is not None and not again:
            raise Refused(
                f"the standings of {held.name} are final since {contest.at_home(held.finalised_at, held.zone)}",
                hint="To fix them anew: --again. To let them follow from the verdicts again: --withdraw.",
            )
        over_at = self._check_over(held)
        measuring = self._finals(held, over_at, top or USUAL_TOP) if finals else []
        if measuring:
            return self._finalised(held, "measuring", measuring)
        store = self.store.standings
        rows: list[Entry] = []
        for gpu in held.gpus:
            rows += store.unfixed(held.name, gpu)
        self.store.finalisations.fix(held, rows, by=self.by, note=note, now=self.now)
        return self._finalised(self.held(board), "final", [])

    def unfinalise(self, board: str, note: str = "") -> Mapping[str, Any]:
        """Let a board's standings follow from the verdicts again."""
        held = self.held(board)
        contest.within("note", note, contest.NOTE_CAP)
        self.store.finalisations.withdraw(held, by=self.by, note=note, now=self.now)
        return self._finalised(self.held(board), "open", [])

    def _check_over(self, board: Board) -> datetime:
        """When the time for submissions that rank ended; Refused while anything can still change the standings."""
        zone, now = board.zone, self.now
        ends = [board.deadline_at, *(one.deadline_at for one in self.store.times.extensions(board))]
        open_until = max((at for at in ends if at is not None), default=None)
        if board.closed_at is not None:
            over_at = board.closed_at
        elif board.deadline_at is None or open_until is None:
            raise Refused(f"board {board.name} has no deadline and isn't closed", hint="Close it first.")
        elif now <= open_until:
            whose = "" if open_until == board.deadline_at else " for somebody with an extension"
            raise Refused(f"board {board.name} is open until {contest.at_home(open_until, zone)}{whose}")
        else:
            over_at = open_until
        if board.frozen_at is not None:
            raise Refused(
                f"the standings of {board.name} are frozen",
                hint=f"Show them first: kbslurm board unfreeze {board.name}",
            )
        if waiting := self.store.finalisations.open_runs(board):
            raise Refused(f"{waiting} ranked run{'s' if waiting > 1 else ''} of {board.name} haven't ended yet")
        if self.store.finalisations.open_rejudges(board):
            raise Refused(f"a rejudge of {board.name} is open", hint="Apply or cancel it first.")
        return over_at

    def _finals(self, board: Board, over_at: datetime, top: int) -> list[str]:
        """The GPU types whose final is still being measured. Orders those that are missing, and applies those that
        are done."""
        measuring = []
        for gpu in board.gpus:
            known = self.store.finals.open(board.name, gpu)
            applied = self.store.finals.applied(board.name, gpu, live=True)
            if known is None and applied is not None and applied.created_at > over_at:
                continue
            if known is None:
                if len(self.store.standings.unfixed(board.name, gpu)) < 2:
                    continue  # nobody to compare
                self.store.finals.order(board.name, gpu, top, by=self.by, now=self.now)
                measuring.append(gpu)
            elif known.is_done:
                self.store.finals.apply(board.name, gpu, by=self.by, now=self.now)
            elif known.is_over:
                raise Refused(f"the final on {gpu} wasn't measured: {_why(known)}", hint=_discard(board, gpu))
            else:
                measuring.append(gpu)
        return measuring

    def _finalised(self, board: Board, state: str, measuring: list[str]) -> dict[str, Any]:
        return {
            "leaderboard": board.name,
            "state": state,
            "measuring": measuring,
            "finalised_at": None if board.finalised_at is None else board.finalised_at.isoformat(),
            "zone": board.zone,
        }


def _why(found: Final) -> str:
    return found.reason or found.run_state.value


def _discard(board: Board, gpu: str) -> str:
    return f"Discard it: kbslurm final {board.name} --gpu {gpu} --forget. Then finalise again, or --without-finals."
