"""A job script's `#SBATCH` lines as slurmrestd wants them: it reads none, so each becomes a field of the request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from kbslurm.backends.slurm.doctor.partitions import read_span

Fields = dict[str, Any]


class Untold(Exception):
    """An option that the API has no field for, or a value that it doesn't take."""


def fields_of(script: str) -> Fields:
    """The request's `job`: all that sbatch would have read from the script, and the script. Untold if that can't be."""
    job: Fields = {"script": script, "environment": ["LC_ALL=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"]}
    for name, value in _options(script):
        fill = _FILLS.get(name)
        if fill is None:
            raise Untold(f"slurmrestd has no field for --{name}; remove it from the site's file, or don't use rest")
        try:
            fill(job, value)
        except ValueError:
            raise Untold(f"slurmrestd can't be told --{name}={value}") from None
    if "tasks" in job and "cpus_per_task" in job:
        job["minimum_cpus"] = job["tasks"] * job["cpus_per_task"]
    return job


def _options(script: str) -> list[tuple[str, str]]:
    """(name, value) of each option; sbatch reads up to the first line that is a command."""
    found: list[tuple[str, str]] = []
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if not line.startswith("#SBATCH"):
            continue
        for word in shlex.split(line.removeprefix("#SBATCH"), comments=True):
            if word.startswith("--"):
                name, _, value = word[2:].partition("=")
                found.append((name, value))
            elif found and not found[-1][1]:
                found[-1] = (found[-1][0], word)
            else:
                raise Untold(f"slurmrestd can't be told {word!r} of the script; write options as --name=value")
    return found


def _put(key: str, read: Callable[[str], Any] = str) -> Callable[[Fields, str], None]:
    def fill(job: Fields, value: str) -> None:
        if not value:
            raise ValueError
        job[key] = read(value)

    return fill


def _always(**fields: Any) -> Callable[[Fields, str], None]:
    return lambda job, _: job.update(fields)


def _tres(key: str) -> Callable[[Fields, str], None]:
    """`gpu:h100:1` or, for --gpus, `h100:1`, beside what another option put there."""

    def fill(job: Fields, value: str) -> None:
        parts = [one if one.startswith("gpu") else f"gpu:{one}" for one in value.split(",") if one]
        if not parts:
            raise ValueError
        job[key] = ",".join([*([job[key]] if key in job else []), *(f"gres/{one}" for one in parts)])

    return fill


def _gres(job: Fields, value: str) -> None:
    told = [f"gres/{one}" for one in value.split(",") if one and one != "none"]
    if told:
        job["tres_per_node"] = ",".join([*([job["tres_per_node"]] if "tres_per_node" in job else []), *told])


def _nodes(job: Fields, value: str) -> None:
    least, _, most = value.partition("-")
    job["minimum_nodes"], job["maximum_nodes"] = int(least), int(most or least)


def _export(job: Fields, value: str) -> None:
    if value not in ("NIL", "NONE"):  # there is no environment of a submitting shell to take over
        raise ValueError


def _exclusive(job: Fields, value: str) -> None:
    if value not in ("", "user", "mcs", "topo"):
        raise ValueError
    job["shared"] = [value or "none"]


def _set(read: Callable[[str], int]) -> Callable[[str], Mapping[str, Any]]:
    return lambda value: {"set": True, "infinite": False, "number": read(value)}


def _minutes(value: str) -> int:
    seconds = read_span(value)
    if seconds is None:
        raise ValueError
    return max(1, -(-int(seconds) // 60))


def _mebibytes(value: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", value, re.IGNORECASE)
    if found is None:
        raise ValueError
    return max(1, round(int(found[1]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}[found[2].upper()]))


def _per_gpu(read: Callable[[str], int]) -> Callable[[str], str]:
    return lambda value: f"gres/gpu:{read(value)}"


def _words(value: str) -> list[str]:
    return value.split(",")


_FILLS: Mapping[str, Callable[[Fields, str], None]] = {
    "account": _put("account"),
    "chdir": _put("current_working_directory"),
    "comment": _put("comment"),
    "constraint": _put("constraints"),
    "cpus-per-gpu": _put("cpus_per_tres", _per_gpu(int)),
    "cpus-per-task": _put("cpus_per_task", int),
    "dependency": _put("dependency"),
    "error": _put("standard_error"),
    "exclude": _put("excluded_nodes", _words),
    "exclusive": _exclusive,
    "export": _export,
    "gpu-freq": _put("tres_freq", lambda value: f"gpu:{value}"),
    "gpus": _tres("tres_per_job"),
    "gpus-per-node": _tres("tres_per_node"),
    "gpus-per-task": _tres("tres_per_task"),
    "gres": _gres,
    "hold": _always(hold=True),
    "job-name": _put("name"),
    "licenses": _put("licenses"),
    "mail-type": _put("mail_type", lambda value: value.upper().split(",")),
    "mail-user": _put("mail_user"),
    "mem": _put("memory_per_node", _set(_mebibytes)),
    "mem-per-cpu": _put("memory_per_cpu", _set(_mebibytes)),
    "mem-per-gpu": _put("memory_per_tres", _per_gpu(_mebibytes)),
    "nice": _put("nice", int),
    "no-requeue": _always(requeue=False),
    "nodelist": _put("required_nodes", _words),
    "nodes": _nodes,
    "ntasks": _put("tasks", int),
    "ntasks-per-node": _put("tasks_per_node", int),
    "open-mode": _put("open_mode", lambda value: [value.upper()]),
    "output": _put("standard_output"),
    "partition": _put("partition"),
    "prefer": _put("prefer"),
    "qos": _put("qos"),
    "requeue": _always(requeue=True),
    "reservation": _put("reservation"),
    "threads-per-core": _put("threads_per_core", int),
    "time": _put("time_limit", _set(_minutes)),
    "time-min": _put("time_minimum", _set(_minutes)),
    "tmp": _put("temporary_disk_per_node", _mebibytes),
    "wckey": _put("wckey"),
}
