"""How many jobs and GPUs the accounting allows us, against what the site's file wants to have open. Pure but for
`limit_findings`, which asks sacctmgr."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kbslurm.backends.slurm.commands import Commands
from kbslurm.domain.finding import Finding, caution, passed
from kbslurm.domain.site import GpuType, Site
from kbslurm.errors import BackendTrouble

ASSOC_FIELDS = "Account,User,Partition,DefaultQOS,MaxJobs,MaxSubmitJobs,GrpJobs,GrpSubmitJobs,GrpTRES,ParentName"
QOS_FIELDS = (
    "Name,MaxJobsPerUser,MaxSubmitJobsPerUser,GrpJobs,GrpSubmitJobs,GrpTRES,MaxTRESPerUser,MaxJobsPA,MaxSubmitJobsPA"
)
USUAL_QOS = "normal"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """An association or QOS and what it limits. None: no limit. `words`: each limit's own name in Slurm."""

    name: str
    jobs: tuple[tuple[str, int], ...] = ()
    submitted: tuple[tuple[str, int], ...] = ()
    gpus: tuple[tuple[str, str, int], ...] = ()  # (limit's name, GPU type or "", how many)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What accounting says: associations by account (of our user and the accounts above), and every QOS."""

    associations: Mapping[str, Holder]
    qos: Mapping[str, Holder]
    default_account: str = ""
    default_qos: Mapping[str, str] = field(default_factory=dict)


def read_limits(assoc: str, qos: str, *, user: str, default_account: str = "") -> Limits:
    """From `sacctmgr -n -P show assoc format=ASSOC_FIELDS` and `show qos format=QOS_FIELDS`."""
    rows = [row for row in _rows(assoc, ASSOC_FIELDS) if row["User"] in ("", user)]
    parents = {row["Account"]: row["ParentName"] for row in rows if not row["User"]}
    own = [row for row in rows if row["User"] == user]
    associations, defaults = {}, {}
    for row in own:
        account = row["Account"]
        chain = [row, *(above for name in _above(account, parents) for above in rows if _is(above, name))]
        associations[account] = Holder(
            name=f"account {account}",
            jobs=_numbers(chain, "MaxJobs", "GrpJobs"),
            submitted=_numbers(chain, "MaxSubmitJobs", "GrpSubmitJobs"),
            gpus=_gpus(chain, "GrpTRES"),
        )
        defaults[account] = row["DefaultQOS"]
    return Limits(
        associations=associations,
        qos={
            row["Name"]: Holder(
                name=f"QOS {row['Name']}",
                jobs=_numbers([row], "MaxJobsPerUser", "MaxJobsPA", "GrpJobs"),
                submitted=_numbers([row], "MaxSubmitJobsPerUser", "MaxSubmitJobsPA", "GrpSubmitJobs"),
                gpus=_gpus([row], "MaxTRESPerUser", "GrpTRES"),
            )
            for row in _rows(qos, QOS_FIELDS)
        },
        default_account=default_account or (own[0]["Account"] if own else ""),
        default_qos=defaults,
    )


def findings_of(site: Site, limits: Limits, partition_qos: Mapping[str, str] | None = None) -> list[Finding]:
    """`max_open` and `count` of all GPU types that one association or QOS pays for, against its limits."""
    users: dict[str, list[GpuType]] = {}
    holders: dict[str, Holder] = {}
    for gpu in site.gpus.values():
        for holder in _holders(gpu, limits, partition_qos or {}):
            holders[holder.name] = holder
            users.setdefault(holder.name, []).append(gpu)
    found = [finding for name, gpus in users.items() for finding in _judged(holders[name], gpus)]
    if not found and holders:
        found = [passed("limits", f"max_open and count are within those of {', '.join(holders)}")]
    return found


def _holders(gpu: GpuType, limits: Limits, partition_qos: Mapping[str, str]) -> Iterator[Holder]:
    account = limits.default_account if gpu.charges_people else gpu.account or limits.default_account
    if account in limits.associations:
        yield limits.associations[account]
    qos = gpu.qos or limits.default_qos.get(account, "") or USUAL_QOS
    for name in dict.fromkeys((qos, partition_qos.get(gpu.partition, ""))):
        if name in limits.qos:
            yield limits.qos[name]


def _judged(holder: Holder, gpus: Sequence[GpuType]) -> Iterator[Finding]:
    where = ", ".join(gpu.name for gpu in gpus)
    wanted = sum(gpu.slots for gpu in gpus)
    name, most = min(holder.submitted, key=lambda one: one[1], default=("", wanted))
    if most < wanted:
        yield caution(
            "limits",
            f"{holder.name} allows {most} submitted jobs ({name}), but max_open is {wanted} in total",
            f"Set max_open so that the sum is {most}, or ask for a higher {name}: sbatch refuses the rest for now.",
            where=where,
        )
    count = sum(gpu.count for gpu in gpus)
    name, most = min(holder.jobs, key=lambda one: one[1], default=("", count))
    if most < count:
        yield caution(
            "limits",
            f"{holder.name} lets {most} jobs run at once ({name}), but count is {count} in total",
            f"Set count so that the sum is {most}, or ask for a higher {name}: the rest waits in Slurm's queue.",
            where=where,
        )
    for name, kind, most in holder.gpus:
        meant = [gpu for gpu in gpus if not kind or re.search(rf"\b{re.escape(kind)}\b", gpu.request)]
        count = sum(gpu.count for gpu in meant)
        if most < count:
            what = f"{kind} GPUs" if kind else "GPUs"
            yield caution(
                "limits",
                f"{holder.name} allows {most} {what} at once ({name}), but count is {count} in total",
                f"Set count so that the sum is {most}, or ask for a higher {name}: the rest waits in Slurm's queue.",
                where=", ".join(gpu.name for gpu in meant),
            )


def limit_findings(site: Site, commands: Commands, partitions: str = "") -> list[Finding]:
    """The same, from the cluster itself. `partitions`: what `scontrol -o show partition` printed."""
    user = site.submit.user or getpass.getuser()
    cluster = [f"cluster={site.slurm.cluster}"] if site.slurm.cluster else []
    told = []
    for words in (
        ["show", "assoc", *cluster, f"format={ASSOC_FIELDS}"],
        ["show", "qos", f"format={QOS_FIELDS}"],
        ["show", "user", user, "format=DefaultAccount"],
    ):
        try:
            answer = commands.run("sacctmgr", ["-n", "-P", *words])
        except BackendTrouble as error:
            return [_unasked(error.message)]
        if answer.status:
            return [_unasked(answer.complaint)]
        told.append(answer.out)
    limits = read_limits(told[0], told[1], user=user, default_account=told[2].strip())
    return findings_of(site, limits, dict(_partition_qos(partitions)))


def _unasked(why: str) -> Finding:
    return caution("limits", f"sacctmgr can't be asked: {why}", "Hold max_open and count to your limits by hand.")


def _partition_qos(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, qos = re.search(r"PartitionName=(\S+)", line), re.search(r"\bQoS=(\S+)", line)
        if name and qos and qos[1] != "N/A":
            yield name[1], qos[1]


def _rows(text: str, fields: str) -> Iterator[dict[str, str]]:
    names = fields.split(",")
    for line in text.splitlines():
        values = line.split("|")
        if len(values) == len(names):
            yield dict(zip(names, values, strict=True))


def _above(account: str, parents: Mapping[str, str]) -> Iterator[str]:
    """The account itself and those above it."""
    seen: set[str] = set()
    while account and account not in seen:
        seen.add(account)
        yield account
        account = parents.get(account, "")


def _is(row: Mapping[str, str], account: str) -> bool:
    return not row["User"] and row["Account"] == account


def _numbers(rows: Iterable[Mapping[str, str]], *names: str) -> tuple[tuple[str, int], ...]:
    """Each limit that is set. A group's limits count above us, too; a maximum is inherited by Slurm itself."""
    return tuple((name, int(row[name])) for row in rows for name in names if row.get(name, "").isdigit())


def _gpus(rows: Iterable[Mapping[str, str]], *names: str) -> tuple[tuple[str, str, int], ...]:
    found = []
    for row in rows:
        for name in names:
            for kind, count in re.findall(r"gres/gpu(?::([^=,]+))?=(\d+)", row.get(name, "")):
                found.append((name, kind, int(count)))
    return tuple(found)
