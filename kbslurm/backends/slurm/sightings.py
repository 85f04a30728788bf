"""Combines an attempt's files and the scheduler's row for its job into a sighting."""

from __future__ import annotations

from dataclasses import replace

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm import evidence
from kbslurm.backends.slurm.evidence import Evidence
from kbslurm.backends.slurm.reader import JobRow, Phase, end_text, ending_of, reason_text, was_waiting
from kbslurm.domain.run import OWN_FAULT, Ending, Handle, Seen, Sighting
from kbslurm.observe.logs import teller

tell = teller("slurm")

FEDERATED = "another cluster of the federation took the job; its own files will show its end"
QUEUED = "it is in the cluster's queue, and Slurm hasn't said yet what it waits for"
REQUEUED = "it was requeued from outside; an attempt runs only once, so it isn't restarted"

LATE = "Slurm's limit came before the run's own: its node took long to prepare it, or somebody shortened the job"


def sighting_of_row(row: JobRow, proof: Evidence, paths: AttemptPaths, site: str) -> Sighting | None:
    """What the scheduler's row and the attempt's files together prove, or None for an unknown state."""
    started_at = row.started_at or proof.claimed_at
    node = row.node or proof.node
    usual = Sighting(
        seen=Seen.WAITING, handle=Handle(row.id), node=node, reason=reason_text(row.reason), started_at=None
    )
    match row.phase:
        case Phase.WAITING if came_back(row, proof):
            return replace(ended_sighting(proof, Ending.CANCELLED, REQUEUED), handle=Handle(row.id))
        case Phase.WAITING:
            return replace(usual, node=None, reason=usual.reason or QUEUED, expected_at=row.expected_at)
        case Phase.RUNNING:
            return replace(usual, seen=Seen.RUNNING, reason="", started_at=started_at)
        case Phase.ELSEWHERE:
            return sighting_elsewhere(proof, Handle(row.id))
        case Phase.ENDED:
            ending = Ending.REPORTED if proof.reported else ending_of(row.state, claimed=proof.claimed)
            if ending in (Ending.NO_REPORT, Ending.CANCELLED) and evidence.slurm_said_memory(paths):
                ending = Ending.MEMORY
            # A watchdog in the job ends what takes too long, before Slurm would, unless it could only start late: an
            # image that a node hasn't seen is read as a whole before. So the run didn't get its time.
            late = ending is Ending.TIMEOUT and proof.told_to_end
            if late or (ending in OWN_FAULT and not proof.began):
                ending = Ending.BOOT_FAILURE
            # It had claimed, so it ran; whatever ends in the queue after that was put back there.
            back = proof.owner == row.id and was_waiting(row.reason)
            requeued = (proof.restarted and ending is Ending.NO_REPORT) or (back and ending is Ending.CANCELLED)
            mute = ending is Ending.NO_REPORT and proof.exit is None and row.state.startswith("FAILED")
            why = "it left no final status in its folder, as when the shared root is full; " if mute else ""
            why = f"{LATE}; " if late else why
            if ending is Ending.NO_REPORT and proof.exit is not None and proof.exit.cause == "judge":
                why = f"the judge was killed by a signal (status {proof.exit.status}) and left no report; "
            return replace(
                usual,
                seen=Seen.ENDED,
                ending=Ending.CANCELLED if requeued else ending,
                exit_code=row.exit_code if proof.exit is None else proof.exit.status,
                reason=REQUEUED if requeued else why + _ending_text(row, node),
                started_at=started_at,
                ended_at=row.ended_at,
                granted_mb=proof.granted_mb,
            )
        case _:
            tell("unknown state", level="warning", site=site, job=row.name, state=row.state)
            return None


def sighting_elsewhere(proof: Evidence, handle: Handle | None) -> Sighting | None:
    """What is known of a job that another cluster took: what its own files say, however long ago this one forgot its
    copy. None if they have no more than a report, which speaks for itself."""
    if proof.exit is not None:
        return replace(killed_sighting(proof), handle=handle)
    if proof.reported:
        return None
    return proof.running() or Sighting(seen=Seen.WAITING, handle=handle, reason=FEDERATED)


def killed_sighting(proof: Evidence) -> Sighting:
    """It ended by a signal, and no scheduler knows why."""
    return ended_sighting(proof, Ending.NO_REPORT, f"it was killed from outside on {proof.node}")


def ended_sighting(proof: Evidence, ending: Ending, reason: str) -> Sighting:
    """An ended sighting, with time and place from its files if known."""
    return Sighting(
        seen=Seen.ENDED,
        handle=proof.handle,
        node=proof.node,
        ending=ending,
        exit_code=proof.exit.status if proof.exit else None,
        reason=reason,
        started_at=proof.claimed_at,
        ended_at=proof.exit.at if proof.exit else None,
    )


def _ending_text(row: JobRow, node: str | None) -> str:
    where = f" on {node}" if node else ""
    why = end_text(row.state, row.reason)
    told = f"Slurm: {row.state.split(' ')[0]}{where}"
    return f"{told} ({why})" if why else told


def came_back(row: JobRow, proof: Evidence) -> bool:
    """Whether the waiting job has run before: its final status was written before Slurm was queried."""
    return proof.exit is not None and proof.owner == row.id
