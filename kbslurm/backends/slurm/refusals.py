"""The meaning of sbatch's errors: certainly not started (permanently or for now), or unclear."""

from __future__ import annotations

import re
from dataclasses import dataclass

ADMIN = "Ask the site's administrators, or fix the site's file."


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A definite refusal. `permanent`: the same request would never be accepted. `limit`: there are too many jobs, so
    every other request like this one is refused too, until one has ended."""

    permanent: bool
    message: str
    hint: str
    limit: bool = False


_LIMIT = re.compile(
    r"(QOS|Assoc)(Grp|Max)\w*|Job violates accounting/QOS policy|Reached (job|maximum)|maximum number of jobs"
    r"|temporarily unable to accept job"
)
# Only errors where Slurm has decided on the request, or sbatch never sent it. Everything else is unclear.
_TABLE: tuple[tuple[str, bool, str], ...] = (
    # limits come first, since their texts also mention accounts and partitions
    (
        r"(QOS|Assoc)(Grp|Max|Min)\w*(Limit|Submit\w*|PerUser)?",
        False,
        "The account's limit is reached; it will be retried.",
    ),
    (
        r"Job violates accounting/QOS policy",
        False,
        "It exceeds a limit on submitted jobs, time or size; see sacctmgr show qos.",
    ),
    (
        r"Reached (job|maximum)|maximum number of jobs|Slurm temporarily unable to accept job",
        False,
        "The queue is full.",
    ),
    (
        r"Batch job submission failed: .*(Partition|partition).*(down|inactive|drain)",
        False,
        "The partition is closed now.",
    ),
    (r"Required (partition|node) not available", False, "The partition is closed, or its nodes are down or drained."),
    (r"Requested reservation is (currently )?(inactive|invalid)|Requested reservation.*expired", False, ADMIN),
    # permanent
    (r"[Ii]nvalid partition( name)? specified", True, "Correct `partition` in the site's file; `sinfo -s` lists them."),
    (
        r"Invalid account or account/partition combination",
        True,
        "Correct `account` and `partition` in the site's file.",
    ),
    (
        r"Invalid qos specification",
        True,
        "Correct `qos` in the site's file; `sacctmgr show assoc` lists what you may use.",
    ),
    (
        r"Invalid generic resource \(gres\) specification",
        True,
        "Correct `request` in the site's file; `sinfo -o %G` lists GRES.",
    ),
    (
        r"Invalid (GRES|TRES|gres|Trackable RESource)",
        True,
        "Correct `request` in the site's file; `sinfo -o %G` lists GRES.",
    ),
    (r"Invalid feature specification|Invalid constraint", True, "Correct `constraint` in the site's file."),
    (r"Invalid node name specified", True, "A node that the job must avoid is unknown to Slurm."),
    (r"Invalid cluster name|'[^']*' can't be reached now, or it is an invalid entry for --cluster", True, ADMIN),
    (r"Requested node configuration is not available", True, "No node has what the site's file requests for one job."),
    (r"Requested time limit is invalid|Invalid --?time specification", True, "Correct the times in the site's file."),
    (
        r"Node count specification invalid|More processors requested than permitted",
        True,
        "Correct `cpus` in the site's file.",
    ),
    (r"Memory (required|specification).*|Invalid --mem specification", True, "Correct `memory` in the site's file."),
    (r"Access/permission (to requested partition )?denied|Access denied|User's group not permitted", True, ADMIN),
    (
        r"Requested partition configuration not available now",
        False,
        "The partition can't accept such a job at the moment.",
    ),
    (r"Invalid user id|Invalid job credential", True, "The cluster doesn't know this account."),
    (
        r"unrecognized option|invalid option|[Ii]nvalid argument",
        True,
        "This Slurm doesn't know an option of the template.",
    ),
    (
        r"Unable to open file|This does not look like a batch script",
        True,
        "The shared root isn't visible where sbatch runs.",
    ),
    (r"Pathname of a file, directory or other parameter too long", True, "The shared root's path is too long."),
    (
        r"Unspecified (job|GPU|gres)|must specify|not specif(y|ied)|requires? .*(account|gpu|gres|partition)",
        True,
        ADMIN,
    ),
)
_COMPILED = tuple((re.compile(pattern), permanent, hint) for pattern, permanent, hint in _TABLE)
_UNCLEAR = re.compile(
    r"Socket timed out|Unable to contact|[Cc]ommunication|connect failure|send/recv|Unexpected message"
    r"|Zero Bytes were transmitted"  # the controller may have died while processing our request
)


def refusal_in(text: str) -> Refusal | None:
    """The definite refusal in sbatch's output, or None if it may have started something."""
    if _UNCLEAR.search(text):
        return None
    # "sleeping and retrying" isn't final: a later try may have been accepted
    said = [line for line in text.splitlines() if not line.rstrip(" .").endswith("retrying")]
    lines = [line.strip() for line in said if re.search(r"sbatch: |error:|fatal:", line)]
    for pattern, permanent, hint in _COMPILED:
        for line in lines:
            if pattern.search(line):
                limit = not permanent and _LIMIT.search(line) is not None
                return Refusal(permanent=permanent, message=_without_prefix(line), hint=hint, limit=limit)
    return None


def _without_prefix(line: str) -> str:
    return re.sub(r"^(sbatch: )?((error|fatal): )?(Batch job submission failed: )?", "", line)
