"""slurmrestd's JSON in the words of Slurm's commands, which all our readers know."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# As Slurm's own job_state_string: of several words, the first of these is what squeue shows.
_SHOWN_FIRST = (
    "COMPLETING STAGE_OUT CONFIGURING RESIZING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT STOPPED REVOKED"
    " RESV_DEL_HOLD SIGNALING"
).split()
# Neither is what a job is: squeue doesn't show them.
_NEVER_SHOWN = frozenset("LAUNCH_FAILED RECONFIG_FAIL POWER_UP_NODE UPDATE_DB EXPEDITING".split())


def number(told: Any) -> int | None:
    """A plain number, or `{"set": true, "infinite": false, "number": 5}`; None if it isn't set."""
    if isinstance(told, Mapping):
        return number(told.get("number")) if told.get("set") and not told.get("infinite") else None
    return int(told) if isinstance(told, int | float) and not isinstance(told, bool) else None


def state(told: Any) -> str:
    """The one word that squeue would show."""
    words = [told] if isinstance(told, str) else [str(word) for word in told or ()]
    shown = next((word for word in _SHOWN_FIRST if word in words), None)
    return shown or next((word for word in words if word not in _NEVER_SHOWN), "?")


def in_queue(job: Mapping[str, Any], form: str) -> str:
    """A job as `squeue -o` shows it in this format."""
    values = {
        "A": str(job.get("job_id", "")),
        "j": plain(job.get("name")),
        "T": state(job.get("job_state")),
        "V": _moment(job.get("submit_time")),
        "S": _moment(job.get("start_time")),
        "N": plain(job.get("nodes")),
        "r": plain(job.get("state_reason")) or "None",
    }
    return re.sub(r"%(\w)", lambda found: values.get(found[1], ""), form)


def in_accounts(job: Mapping[str, Any], fields: Sequence[str]) -> str:
    """A job as `sacct -P -o` shows it with these fields."""
    times = _part(job, "time")
    told = _part(job, "state")
    values = {
        "JobIDRaw": str(job.get("job_id", "")),
        "JobName": plain(job.get("name")),
        "State": state(told.get("current")),
        "ExitCode": _exit_code(_part(job, "exit_code")),
        "Submit": _moment(times.get("submission"), "Unknown"),
        "Start": _moment(times.get("start"), "Unknown"),
        "End": _moment(times.get("end"), "Unknown"),
        "NodeList": plain(job.get("nodes")) or "None assigned",
        "Reason": plain(told.get("reason")) or "None",
    }
    return "|".join(values.get(field, "") for field in fields)


def node_line(node: Mapping[str, Any], partition: str, widths: Sequence[int]) -> str:
    """A node as `sinfo -N -O` shows it, in columns of these widths."""
    fields = (
        plain(node.get("name")),
        partition,
        "+".join(str(word).lower() for word in node.get("state") or ["unknown"]),
        plain(node.get("gres")) or "(null)",
        plain(node.get("gres_used")) or "(null)",
        plain(node.get("reason")) or "none",
    )
    return "".join(field[:width].ljust(width) for field, width in zip(fields, widths, strict=True))


def gres_line(node: Mapping[str, Any], partition: str) -> str:
    """A node as `sinfo -o %P|%G|%c|%D|%t` shows it."""
    words = [str(word).lower() for word in node.get("state") or ["unknown"]]
    shown = "drain" if "drain" in words else words[0]
    return f"{partition}|{plain(node.get('gres'))}|{number(node.get('cpus')) or 0}|1|{shown}"


def partition_line(told: Mapping[str, Any]) -> str:
    """A partition as `scontrol -o show partition` shows it, as far as we read it."""
    states = _part(told, "partition").get("state") or ["UP"]
    longest = number(_part(told, "maximums").get("time"))
    limit = "UNLIMITED" if longest is None else f"{longest // 1440}-{longest // 60 % 24:02}:{longest % 60:02}:00"
    return f"PartitionName={told.get('name')} State={'+'.join(map(str, states))} MaxTime={limit}"


def reservation_line(told: Mapping[str, Any], now: float) -> str:
    """A reservation as `scontrol show reservation --oneliner` shows it."""
    starts, ends = number(told.get("start_time")) or 0, number(told.get("end_time")) or 0
    flags = ",".join(map(str, told.get("flags") or ()))
    shown = "ACTIVE" if starts <= now < ends else "INACTIVE"
    return (
        f"ReservationName={told.get('name')} StartTime={starts} EndTime={ends} Nodes={told.get('node_list') or ''}"
        f" Flags={flags} State={shown}"
    )


def settings(meta: Any) -> str:
    """The two lines of `scontrol show config` that slurmrestd tells beside each answer."""
    told = meta if isinstance(meta, Mapping) else {}
    storage, cluster = (
        plain(_part(told, "plugin").get("accounting_storage")),
        plain(_part(told, "slurm").get("cluster")),
    )
    return f"AccountingStorageType = {storage or '(null)'}\nClusterName = {cluster or '(null)'}\n"


def plain(told: Any) -> str:
    """A text on one line."""
    return " ".join(str(told or "").split())


def _part(told: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = told.get(key)
    return found if isinstance(found, Mapping) else {}


def _moment(told: Any, unset: str = "N/A") -> str:
    return str(number(told) or unset)


def _exit_code(told: Mapping[str, Any]) -> str:
    return f"{number(told.get('return_code')) or 0}:{number(_part(told, 'signal').get('id')) or 0}"
