"""Keepers as jobs: what their folders and Slurm's rows prove. They are opened, found and cancelled like any job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from kbslurm.backends.slurm import evidence
from kbslurm.backends.slurm.evidence import Evidence, read_exit
from kbslurm.backends.slurm.reader import JobRow, Phase, end_text, reason_text
from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.backends.slurm.warm.pulse import Pulse
from kbslurm.domain.keepers import KeeperEnding, KeeperSighting
from kbslurm.domain.run import Handle, Seen

# Why a keeper's script says that it left. A signal comes from Slurm, which alone knows why.
_LEFT = {
    "idle": KeeperEnding.IDLE,
    "life": KeeperEnding.LIFE,
    "drained": KeeperEnding.DRAINED,
    "unfit": KeeperEnding.UNFIT,
    "setup": KeeperEnding.FAILED,
}
_ENDED = {
    "PREEMPTED": KeeperEnding.PREEMPTED,
    "NODE_FAIL": KeeperEnding.NODE_FAILURE,
    "BOOT_FAIL": KeeperEnding.NODE_FAILURE,
    "TIMEOUT": KeeperEnding.LIFE,
    "DEADLINE": KeeperEnding.LIFE,
    "CANCELLED": KeeperEnding.CANCELLED,
}


def from_files(keeper: KeeperFolder, pulse: Pulse) -> KeeperSighting | None:
    """What a keeper's files alone prove; None: Slurm must be asked. OSError if they can't be read."""
    proof = evidence.look(keeper.paths)
    left = read_exit(keeper.paths)
    if left is not None and (ending := _LEFT.get(str(left.get("cause")))) is not None:
        return _ended(proof, ending, str(left.get("why") or ""), ended_at=evidence.moment(keeper.paths.exit))
    if left is not None or not proof.claimed or not pulse.beats(keeper):
        return None
    return KeeperSighting(
        seen=Seen.RUNNING,
        handle=proof.handle,
        node=proof.node,
        started_at=proof.claimed_at,
        draining=keeper.drain.exists(),
        **_told(keeper),
    )


def with_row(keeper: KeeperFolder, row: JobRow, *, begun: bool) -> KeeperSighting | None:
    """The same with its row; None changes nothing. `begun`: its script had begun before the scheduler was asked."""
    proof = evidence.look(keeper.paths)
    handle = Handle(row.id)
    match row.phase:
        case Phase.WAITING if proof.claimed and not begun:  # an old row: it has begun since
            return None
        case Phase.WAITING if proof.claimed:  # requeued from outside: it comes back only to exit at its claim
            return _ended(proof, KeeperEnding.CANCELLED, "it was requeued from outside; a keeper runs only once")
        case Phase.WAITING:
            why = reason_text(row.reason)
            return KeeperSighting(seen=Seen.WAITING, handle=handle, reason=why, expected_at=row.expected_at)
        case Phase.RUNNING if proof.claimed and keeper.beat.exists():
            # one that has said why it left takes no more work, though Slurm hasn't cleared up after it
            gone = keeper.drain.exists() or keeper.paths.exit.exists()
            started_at = proof.claimed_at
            node = proof.node or row.node
            return KeeperSighting(seen=Seen.RUNNING, handle=handle, node=node, started_at=started_at, draining=gone)
        case Phase.RUNNING:
            return KeeperSighting(seen=Seen.WAITING, handle=handle, reason="its script is being started")
        case Phase.ENDED:
            word = row.state.strip().split(" ")[0].rstrip("+").upper()
            if (left := from_files_ended(keeper, proof)) is not None:
                return left
            text = f"Slurm: {word}"
            if why := end_text(row.state, row.reason):
                text += f" ({why})"
            return _ended(proof, _ENDED.get(word, KeeperEnding.FAILED), text, ended_at=row.ended_at, handle=handle)
        case _:
            return None


def from_files_ended(keeper: KeeperFolder, proof: Evidence) -> KeeperSighting | None:
    """Why it says that it left, once Slurm says that it has ended."""
    left = read_exit(keeper.paths) or {}
    ending = _LEFT.get(str(left.get("cause")))
    return None if ending is None else _ended(proof, ending, str(left.get("why") or ""))


def _ended(
    proof: Evidence,
    ending: KeeperEnding,
    reason: str,
    *,
    ended_at: datetime | None = None,
    handle: Handle | None = None,
) -> KeeperSighting:
    return KeeperSighting(
        seen=Seen.ENDED,
        handle=handle or proof.handle,
        node=proof.node,
        started_at=proof.claimed_at,
        ended_at=ended_at,
        ending=ending,
        reason=reason,
    )


def _told(keeper: KeeperFolder) -> dict[str, Any]:
    """What it says of its work, as far as it makes sense."""
    try:
        said = json.loads(keeper.said() or b"null")
    except ValueError:
        return {}
    if not isinstance(said, dict):
        return {}
    served, idle_s = said.get("served"), said.get("idle_s")
    if not isinstance(served, int) or not isinstance(idle_s, int) or not 0 <= idle_s < 1 << 30:
        return {}
    return {
        "served": served,
        "idle_since": None if said.get("busy") else datetime.now(UTC) - timedelta(seconds=idle_s),
    }
