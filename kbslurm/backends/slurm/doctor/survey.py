"""A cluster's own description, read once: partitions, GPUs, accounts, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.doctor.partitions import GRES_FORMAT, Partition, read_partitions
from kbslurm.domain.site import Paths, Scheduler, Site, Submission
from kbslurm.errors import BackendTrouble

ACCOUNT_FIELDS = "Account,Partition,QOS"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Everything that was found. `cannot`: unanswered queries, in words."""

    cluster: str
    version: str
    settings: Mapping[str, str]
    partitions: tuple[Partition, ...]
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    runtime: str = ""
    program: str = ""
    cannot: tuple[str, ...] = ()

    @property
    def accounting(self) -> bool:
        """Whether sacct has any data."""
        return has_accounting(self.settings)


def read_settings(text: str) -> dict[str, str]:
    """`scontrol show config` as a mapping; `(null)` is an empty string. Includes the cgroup settings below.

    `answered at` is the controller's own clock, in seconds since the epoch, where its Slurm can say that.
    """
    found: dict[str, str] = {}
    if answered := re.match(r"Configuration data as of (\d+)$", text, re.MULTILINE):
        found["answered at"] = answered[1]
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Za-z0-9_/ ]+(?:\[\d+\])?", key.strip()):
            told = value.strip()
            found.setdefault(key.strip(), "" if told == "(null)" else told)
    return found


def has_accounting(settings: Mapping[str, str]) -> bool:
    """Whether Slurm keeps the history that sacct shows."""
    return settings.get("AccountingStorageType", "").endswith("slurmdbd")


def read_version(text: str) -> str:
    """`slurm-wlm 24.11.5` or `slurm 24.05.3` → the number."""
    found = re.search(r"\d+\.\d+(?:\.\d+)?\S*", text)
    return found[0] if found else ""


def read_accounts(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`sacctmgr -n -P show assoc … format=ACCOUNT_FIELDS` → the accounts, and every QOS that they allow."""
    accounts: dict[str, None] = {}
    qos: dict[str, None] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == ACCOUNT_FIELDS.count(",") + 1 and fields[0]:
            accounts[fields[0]] = None
            qos |= dict.fromkeys(name for name in fields[2].split(",") if name)
    return tuple(accounts), tuple(qos)


def without_a_file(name: str, *, bin_dir: str = "", submit: Submission | None = None) -> Site:
    """A site of which only the way to its scheduler is known yet."""
    return Site(
        name=name,
        paths=Paths(shared_root=PurePosixPath("/")),
        slurm=Scheduler(bin_dir=bin_dir),
        submit=submit or Submission(),
        gpus={},
    )


def survey(commands: Commands, *, user: str, program: str = "") -> Survey:
    """Query the cluster. BackendTrouble if there is no Slurm here; other unanswered queries are recorded, not fatal."""
    answer = commands.run("sinfo", ["-V"])
    if lapse := commands.lapse_in(answer.status, answer.err):
        raise BackendTrouble(commands.site.name, lapse)
    version = read_version(answer.out)
    cannot: list[str] = []

    def asked(tool: str, *arguments: str) -> str:
        try:
            answer = commands.run(tool, arguments)
        except BackendTrouble as error:
            cannot.append(error.message)
            return ""
        if answer.status:
            cannot.append(f"{tool}: {answer.complaint}")
        return answer.out

    settings = read_settings(asked("scontrol", "show", "config"))
    partitions = read_partitions(
        asked("sinfo", "-h", "-a", "-o", GRES_FORMAT), asked("scontrol", "-o", "show", "partition")
    )
    accounts, qos = (), ()  # type: tuple[str, ...], tuple[str, ...]
    if has_accounting(settings):
        words = ("-n", "-P", "show", "assoc", f"user={user}", f"format={ACCOUNT_FIELDS}")
        accounts, qos = read_accounts(asked("sacctmgr", *words))
    return Survey(
        cluster=settings.get("ClusterName", ""),
        version=version,
        settings=settings,
        partitions=partitions,
        accounts=accounts,
        qos=qos,
        runtime="singularity" if program.endswith("singularity") else "apptainer" if program else "",
        program=program,
        cannot=tuple(cannot),
    )
