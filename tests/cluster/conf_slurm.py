"""The configuration of the test cluster: five nodes, three GPU types, and everything else a small site has.

Pure: options in, texts out. `site(options)` is what up.py writes below /etc of the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

HOST = "kbslurm"
CLUSTER = "kbtest"
ACCOUNT = "contest"


@dataclass(frozen=True, kw_only=True)
class Node:
    """One slurmd: name, the type of its GPUs and how many it has."""

    name: str
    gpu: str
    gpus: int

    def devices(self) -> list[str]:
        """Paths of the fake GPUs; nodes of one type share theirs, as every machine numbers its own from 0."""
        return [f"/dev/kbgpu-{self.gpu}-{number}" for number in range(self.gpus)]


NODES = (
    Node(name="h1", gpu="h100", gpus=3),
    Node(name="h2", gpu="h100", gpus=3),
    Node(name="a1", gpu="a100", gpus=3),
    Node(name="a2", gpu="a100", gpus=3),
    Node(name="m1", gpu="1g.10gb", gpus=2),
)
# Not in slurm.conf: `slurmd -Z` registers it while the cluster runs, at the usual port, as no other can be chosen then.
GROWN = Node(name="d1", gpu="h100", gpus=3)
MOST_NODES = 16
FIRST_PORT = 17001


@dataclass(frozen=True, kw_only=True)
class Options:
    """What differs from one cluster to the next."""

    slurm: str = "24.11"
    accounting: bool = True
    min_job_age_s: int = 300
    slurmd_timeout_s: int = 20
    cgroups: bool = False
    private_tmp: bool = False
    extra: tuple[str, ...] = ()

    @property
    def rest(self) -> bool:
        """Whether slurmrestd runs, too: 22.05's speaks versions of the API that are too old for us."""
        return self.slurm != "22.05"


def devices() -> list[str]:
    """Every fake GPU's device file, once."""
    return sorted({path for node in (*NODES, GROWN) for path in node.devices()})


def grown_conf() -> str:
    """What slurmd says of the grown node when it registers, in the words of slurm.conf."""
    return f"CPUs=12 RealMemory=16000 Gres=gpu:{GROWN.gpu}:{GROWN.gpus} Feature={GROWN.gpu}"


JWT_KEY = "/etc/slurm/jwt_hs256.key"
BY_TOKEN = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={JWT_KEY}\n"
REST_PORT = 6820
REST_SOCKET = "/run/slurmrestd/slurmrestd.sock"


def slurm_conf(options: Options) -> str:
    """slurm.conf. Memory is a consumable, enforced by polling or, with cgroups, by the kernel."""
    accounting = (
        f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost={HOST}\n"
        "AccountingStorageEnforce=associations,limits,qos\nAccountingStorageTRES=gres/gpu\n"
        if options.accounting
        else ""
    )
    nodes = "".join(
        f"NodeName={node.name} NodeHostname={HOST} NodeAddr=127.0.0.1 Port={FIRST_PORT + place} CPUs=12 "
        f"RealMemory=16000 Gres=gpu:{node.gpu}:{node.gpus} Feature={node.gpu.replace('.', '_')}\n"
        for place, node in enumerate(NODES)
    )
    return f"""\
ClusterName={CLUSTER}
SlurmctldHost={HOST}(127.0.0.1)
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
{BY_TOKEN if options.rest else ""}CredType=cred/munge
SlurmctldPort=6817
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd-%n.pid
SlurmdSpoolDir=/var/spool/slurmd/%n
StateSaveLocation=/var/spool/slurmctld
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ProctrackType=proctrack/{"cgroup" if options.cgroups else "linuxproc"}
TaskPlugin=task/{"cgroup" if options.cgroups else "none"}
PropagateResourceLimits=NONE
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout={options.slurmd_timeout_s}
InactiveLimit=0
KillWait=2
MinJobAge={options.min_job_age_s}
MessageTimeout=10
BatchStartTimeout=10
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MaxNodeCount={MOST_NODES}
DefMemPerCPU=500
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=5
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
JobAcctGatherType=jobacct_gather/{"cgroup" if options.cgroups else "linux"}
JobAcctGatherFrequency=task=1
{"" if options.cgroups else "JobAcctGatherParams=OverMemoryKill"}
{PRIVATE_TMP if options.private_tmp else ""}
{accounting}{nodes}\
NodeSet=h100s Feature=h100
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=gpu-h100 Nodes=h100s MaxTime=INFINITE DefaultTime=10 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=gpu-a100 Nodes=a[1-2] MaxTime=INFINITE DefaultTime=10 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=mig Nodes=m1 MaxTime=INFINITE DefaultTime=10 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=low Nodes=ALL MaxTime=INFINITE DefaultTime=10 PriorityTier=1 PreemptMode=CANCEL GraceTime=0 State=UP
PartitionName=high Nodes=ALL MaxTime=INFINITE DefaultTime=10 PriorityTier=100 PreemptMode=OFF State=UP
""" + "".join(f"{line}\n" for line in options.extra)


PRIVATE_TMP = "JobContainerType=job_container/tmpfs\nPrologFlags=Contain"
# CgroupAutomount is gone since 22.05; cores aren't constrained: the nodes claim more processors than the machine has.
CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
ConstrainDevices=yes
MinRAMSpace=30
"""
JOB_CONTAINER = """\
AutoBasePath=true
BasePath=/run/slurm-private
Dirs=/tmp,/dev/shm
Shared=false
"""


def cgroup_conf(options: Options) -> str:
    if options.cgroups:
        return CGROUPS
    # 22.05 doesn't know "disabled"; its plugin for version 1 does nothing until somebody asks for a group
    return f"CgroupPlugin={'cgroup/v1' if options.slurm == '22.05' else 'disabled'}\n"


def gres_conf() -> str:
    """gres.conf: which device files are whose."""
    return "".join(
        f"NodeName={node.name} Name=gpu Type={node.gpu} File=/dev/kbgpu-{node.gpu}-[0-{node.gpus - 1}]\n"
        for node in (*NODES, GROWN)
    )


def slurmdbd_conf(options: Options) -> str:
    return f"""\
AuthType=auth/munge
{BY_TOKEN if options.rest else ""}\
DbdHost={HOST}
DbdAddr=127.0.0.1
DbdPort=6819
SlurmUser=slurm
PidFile=/run/slurm/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""


# The database is thrown away with the cluster: it need not survive a power cut.
MARIADB_CNF = """\
[mysqld]
datadir=/var/lib/mysql
socket=/run/mysqld/mysqld.sock
pid-file=/run/mysqld/mysqld.pid
skip-networking
skip-name-resolve
skip-log-bin
performance-schema=OFF
innodb-buffer-pool-size=64M
innodb-flush-log-at-trx-commit=0
innodb-doublewrite=0
innodb-lock-wait-timeout=900
init-file=/etc/mysql/kbslurm.sql
"""

MARIADB_INIT = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
"""

SSHD_CONF = """\
Port 22
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
AllowUsers kb
UsePAM no
PrintMotd no
PidFile none
MaxStartups 100
MaxSessions 50
SetEnv PATH=/kb/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 XDG_RUNTIME_DIR=/run/user/1000
Subsystem sftp internal-sftp
"""


def site(options: Options) -> dict[str, str]:
    """Every configuration file of the cluster, by its path in the tree."""
    names = " ".join(node.name for node in (*NODES, GROWN))
    return {
        "/etc/hostname": f"{HOST}\n",
        "/etc/hosts": f"127.0.0.1 localhost {HOST} {names}\n::1 localhost\n",
        "/etc/slurm/slurm.conf": slurm_conf(options),
        "/etc/slurm/gres.conf": gres_conf(),
        "/etc/slurm/cgroup.conf": cgroup_conf(options),
        "/etc/slurm/job_container.conf": JOB_CONTAINER,
        "/etc/slurm/slurmdbd.conf": slurmdbd_conf(options),
        "/etc/mysql/kbslurm.cnf": MARIADB_CNF,
        "/etc/mysql/kbslurm.sql": MARIADB_INIT,
        "/etc/ssh/sshd_config": SSHD_CONF,
    }
