"""Parses squeue and sacct, whose text format is the same from Slurm 20.11 to 26.05, and interprets it.

An unknown word means unknown: neither success nor failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from kbslurm.domain.run import Ending

SQUEUE_FORMAT = "%A|%j|%T|%V|%S|%N|%r"
# The output of --test-only on stderr; the site's plugins may add their own lines.
_WOULD_START = re.compile(
    r"^sbatch: Job \d+ to start at (?P<at>\S+) using \d+ (?:processors|cpus) on (?:nodes )?\S+ in partition \S+\s*$",
    re.MULTILINE,
)
SACCT_FIELDS = "JobIDRaw,JobName,State,ExitCode,Submit,Start,End,NodeList,Reason"


class Phase(StrEnum):
    """The meaning of a Slurm state for us."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    ELSEWHERE = "elsewhere"  # in a federation, another cluster has it
    INDETERMINATE = "indeterminate"


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """One job as a scheduler command shows it."""

    id: str
    name: str
    state: str
    submitted_at_s: int = 0
    started_at: datetime | None = None
    expected_at: datetime | None = None  # when Slurm plans to start it, assuming that every job uses up its limits
    ended_at: datetime | None = None
    node: str | None = None
    reason: str = ""
    exit_code: int | None = None

    @property
    def phase(self) -> Phase:
        """See `phase_of`."""
        return phase_of(self.state)


_PHASES: Mapping[str, Phase] = {
    **dict.fromkeys(
        (
            "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT POWER_UP_NODE "
            "LAUNCH_FAILED RECONFIG_FAIL EXPEDITING"
        ).split(),
        Phase.WAITING,
    ),
    **dict.fromkeys(
        "RUNNING SUSPENDED COMPLETING RESIZING SIGNALING STAGE_OUT STOPPED UPDATE_DB".split(), Phase.RUNNING
    ),
    **dict.fromkeys(
        ("BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT").split(),
        Phase.ENDED,
    ),
    "REVOKED": Phase.ELSEWHERE,
}

_ENDINGS: Mapping[str, Ending] = {
    "BOOT_FAIL": Ending.BOOT_FAILURE,
    "CANCELLED": Ending.CANCELLED,
    "COMPLETED": Ending.NO_REPORT,
    "DEADLINE": Ending.NO_REPORT,
    "FAILED": Ending.NO_REPORT,
    "NODE_FAIL": Ending.NODE_FAILURE,
    "OUT_OF_MEMORY": Ending.MEMORY,
    "PREEMPTED": Ending.PREEMPTED,
    "TIMEOUT": Ending.TIMEOUT,
}

# The message for the submitter, by the reason word that Slurm shows in parentheses.
REASONS: Mapping[str, str] = {
    "Priority": "waiting for its turn in the cluster's queue",
    "Resources": "waiting for a GPU to become free",
    "JobHeldUser": "held by the service's own account; a host can release it",
    "JobHeldAdmin": "held by the cluster's administrators",
    "PartitionDown": "the cluster's partition is down",
    "PartitionInactive": "the cluster's partition is closed",
    "ReqNodeNotAvail": "every node that fits is reserved, drained or down",
    "Nodes required for job are DOWN": "every node that fits is reserved, drained or down",
    "BeginTime": "not before a set time",
    "Reservation": "waiting for its reservation to begin",
    "QOSMaxJobsPerUserLimit": "the account's limit on running jobs is reached",
    "AssocGrpGRES": "the account's share of GPUs is used up",
    "AssocMaxJobsLimit": "the account's limit on running jobs is reached",
    "PartitionTimeLimit": "it requests more time than the partition allows",
    "Licenses": "waiting for a licence",
    "NodeDown": "its node went down",
    "launch_failed_requeued_held": "the node couldn't start it; held",
}


# What a state says where Slurm gives no reason, in words for the submitter; true whoever cancelled it.
ENDED_BY: Mapping[str, str] = {
    "CANCELLED": "its job was cancelled at the cluster",
    "PREEMPTED": "the cluster needed its GPU for a job with a higher priority",
    "NODE_FAIL": "its node went down",
    "BOOT_FAIL": "its node couldn't be booted",
}


# What only a waiting job has. Slurm keeps it when such a job is cancelled.
WAITED = frozenset(REASONS) - {"NodeDown", "launch_failed_requeued_held"}


def was_waiting(reason: str) -> bool:
    """Whether a job with this reason word was in the queue when it ended."""
    return re.sub(r"^\((.*)\)$", r"\1", reason.strip()).split(",")[0].replace(" ", "_") in WAITED


def phase_of(state: str) -> Phase:
    """The meaning of a state like `RUNNING` or `CANCELLED by 1000`."""
    return _PHASES.get(_word(state), Phase.INDETERMINATE)


def ending_of(state: str, *, claimed: bool) -> Ending:
    """Why a job in this terminal state left no report. `claimed`: its first line had run."""
    word = _word(state)
    if word in ("FAILED", "COMPLETED") and not claimed:
        return Ending.BOOT_FAILURE
    return _ENDINGS[word]


def reason_text(reason: str) -> str:
    """The sentence for a reason word, or the word itself."""
    word = re.sub(r"^\((.*)\)$", r"\1", reason.strip()).split(",")[0]
    if word in ("", "None"):
        return ""
    return REASONS.get(word.replace(" ", "_"), REASONS.get(word, word))


def end_text(state: str, reason: str) -> str:
    """The sentence for how a job ended: its reason's, or its state's."""
    return reason_text(reason) or ENDED_BY.get(_word(state), "")


def read_squeue(text: str) -> tuple[JobRow, ...]:
    """The rows of `squeue -h -o SQUEUE_FORMAT`. Invalid lines are skipped: missing isn't finished."""
    found = []
    for fields in _split(text, SQUEUE_FORMAT.count("|")):
        id_, name, state, submitted, started, node, reason = fields
        if not id_.isdigit():
            continue
        found.append(
            JobRow(
                id=id_,
                name=name,
                state=state,
                submitted_at_s=_epoch(submitted) or 0,
                # %S is what `squeue --start` shows: for a waiting job, the start that Slurm has planned.
                started_at=None if phase_of(state) is Phase.WAITING else _moment(started),
                expected_at=_moment(started) if phase_of(state) is Phase.WAITING else None,
                node=_node(node),
                reason=reason,
            )
        )
    return tuple(found)


def read_sacct(text: str) -> tuple[JobRow, ...]:
    """The rows of `sacct -X -n -P -D -o SACCT_FIELDS`, the newest incarnation of each id only."""
    newest: dict[str, JobRow] = {}
    for fields in _split(text, SACCT_FIELDS.count(",")):
        id_, name, state, code, submitted, started, ended, node, reason = fields
        if not id_.isdigit():
            continue
        row = JobRow(
            id=id_,
            name=name,
            state=state,
            submitted_at_s=_epoch(submitted) or 0,
            started_at=_moment(started),
            ended_at=_moment(ended),
            node=_node(node),
            reason=reason,
            exit_code=_exit_code(code),
        )
        if id_ not in newest or newest[id_].submitted_at_s <= row.submitted_at_s:
            newest[id_] = row
    return tuple(newest.values())


def read_test_only(text: str) -> datetime | None:
    """When `sbatch --test-only` would start the job, or None if it doesn't say so on one plain line."""
    found = [_moment(line["at"]) for line in _WOULD_START.finditer(text)]
    return found[0] if len(found) == 1 else None


def is_strange(text: str, bars: int) -> bool:
    """Whether it contains an unknown line: then absence from it proves nothing."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("CLUSTER:")]
    return any(line.count("|") < bars or not line.strip()[0].isdigit() for line in lines)


def _split(text: str, bars: int) -> Iterable[list[str]]:
    for line in text.splitlines():
        fields = line.strip().split("|", bars)
        if len(fields) == bars + 1:
            yield [field.strip() for field in fields]


def _word(state: str) -> str:
    return state.strip().split(" ")[0].rstrip("+").upper()


def _node(text: str) -> str | None:
    return None if text in ("", "(null)", "None assigned", "n/a", "N/A") else text


def _epoch(text: str) -> int | None:
    if text.isdigit():
        return int(text) or None
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text):  # a Slurm that doesn't know SLURM_TIME_FORMAT's %s
        return int(datetime.fromisoformat(text).astimezone().timestamp())
    return None


def _moment(text: str) -> datetime | None:
    epoch = _epoch(text)
    return None if epoch is None else datetime.fromtimestamp(epoch, UTC)


def _exit_code(text: str) -> int | None:
    found = re.fullmatch(r"(\d+):(\d+)", text)
    if not found:
        return None
    status, by_signal = int(found[1]), int(found[2])
    return 128 + by_signal if by_signal else status
