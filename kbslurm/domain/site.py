"""A site as a value: everything about one cluster that an attempt needs, and the current state of its nodes.

A GPU type is a name in a configuration file, never a member of an enum: what it asks Slurm for is text from the site's
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

from kbslurm.domain.keepers import Warm

Runtime = Literal["apptainer", "singularity", "none"]
Vendor = Literal["nvidia", "amd", "none"]
Network = Literal["none", "shared"]
Profiler = Literal["none", "ncu", "rocprof"]
Via = Literal["local", "ssh", "rest"]
Verified = Literal["docs", "community", "live"]

LEAST_OPEN = 4
PERSON_ACCOUNT = "{person.account}"
CONTAINED_LEVEL = 3
BARE_LEVEL = 0


@dataclass(frozen=True, kw_only=True)
class GpuType:
    """One kind of GPU at a site and how a job asks for it. `request` is one sbatch option, like `--gres=gpu:h100:1`,
    and `multi` the same for several on one node, with `{n}` for how many; `per_node` is how many a node has.
    `profiler`: what may run around a runner for a profile, if the image has it and the driver allows it.

    `account` may contain PERSON_ACCOUNT: then each person's own account pays. `min_time_s`: what a job requests at
    least, unless it only tests. `licenses` and `nice` are what sbatch's options of these names take.

    `image_tag`: which version of the image, part of its file's name: `cuda.sif` with the tag 2026-11 is
    `cuda-2026-11.sif`, so that a new version never takes the name of one that jobs may have open.

    `gpu_freq`: what sbatch's --gpu-freq takes, so that Slurm sets the device's clocks for the job.

    `whole`: the device belongs to one job; false for MIG slices and shared devices, where others disturb timings.
    `peak_tflops`, `peak_tbytes`: one GPU's theoretical peak per second, for problems that declare their work; in the
    fastest number format that a submission may use.
    """

    name: str
    request: str = ""
    multi: str = ""
    per_node: int = 0
    vendor: Vendor = "nvidia"
    profiler: Profiler = "none"
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    exclusive: bool = False
    licenses: str = ""
    nice: int = 0
    gpu_freq: str = ""
    whole: bool = True
    cpus: int = 2
    memory_mb: int | None = None
    max_time_s: float | None = None
    min_time_s: float | None = None
    image: str = ""
    image_tag: str = ""
    image_digest: str = ""
    count: int = 0
    max_open: int | None = None
    options: tuple[str, ...] = ()
    peak_tflops: float | None = None
    peak_tbytes: float | None = None
    warm: Warm | None = None

    @property
    def charges_people(self) -> bool:
        """Whether each person's own account pays for their runs."""
        return PERSON_ACCOUNT in self.account

    @property
    def image_file(self) -> str:
        """The image with its tag: a name below the site's folder of images, or a path."""
        if not self.image_tag:
            return self.image
        path = PurePosixPath(self.image)
        return str(path.with_name(f"{path.stem}-{self.image_tag}{path.suffix}"))

    @property
    def slots(self) -> int:
        """How many attempts may be open at once: enough to keep the GPUs busy, few enough that we keep control of the
        order."""
        return self.max_open if self.max_open is not None else max(LEAST_OPEN, 2 * self.count)

    @property
    def most(self) -> int | None:
        """How many GPUs of one node a job may request; None: no known limit."""
        if self.vendor != "none" and not self.multi:
            return 1
        return self.per_node or None


@dataclass(frozen=True, kw_only=True)
class Container:
    """How code is isolated on the node. `runtime = "none"` means only by processes of one user."""

    runtime: Runtime = "apptainer"
    program: str = ""
    network: Network = "none"
    options: tuple[str, ...] = ()

    @property
    def executable(self) -> str:
        """The commands run on the node."""
        return self.program or self.runtime


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Where sbatch is called: here, or through ssh with keys only and one persistent connection. `by_hand`: only
    through a connection that somebody has opened at `control_path`, as where a login takes a second factor.

    Or slurmrestd at `url`, in version `api` or the newest that both know, with a JWT from `token_command`, `token_file`
    or the environment. `user`: whose jobs they are, where the token doesn't say it."""

    via: Via = "local"
    host: str = ""
    user: str = ""
    port: int = 22
    identity: str = ""
    proxy_jump: str = ""
    control_path: str = ""
    by_hand: bool = False
    known_hosts: str = ""
    options: tuple[str, ...] = ()
    url: str = ""
    api: str = ""
    ca_file: str = ""
    token_file: str = ""
    token_command: str = ""

    @property
    def exposes_token(self) -> bool:
        """Whether the token would cross a network in clear text."""
        parts = urlsplit(self.url)
        return parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """How to call Slurm's commands, and this Slurm's features."""

    bin_dir: str = ""
    conf: str = ""
    cluster: str = ""
    accounting: bool = True
    submit_timeout_s: float = 150.0
    ask_timeout_s: float = 30.0
    pyslurm_python: str = ""


@dataclass(frozen=True, kw_only=True)
class Poll:
    """How often Slurm may be queried. The admin sets the minimum interval; both limits are enforced in code."""

    min_interval_s: float = 15.0
    calls_per_minute: float = 30.0
    slow_s: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Paths. `shared_root` is the same on the login node and on every compute node; `node_scratch` may contain
    variables that Slurm sets in the job (`$TMPDIR`, `/localscratch/$SLURM_JOB_ID`). `scratch_mb` limits what one runner
    may write in total: in memory if the node allows a private file system, else below `node_scratch`."""

    shared_root: PurePosixPath
    image_dir: PurePosixPath | None = None
    node_scratch: str = ""
    scratch_mb: int = 1024
    shm: PurePosixPath = PurePosixPath("/dev/shm")  # noqa: S108 - the kernel's own shared memory, a private folder in it
    visibility_delay_s: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Site:
    """One cluster, as configured. `wckey` is noted with every job; `mail` gets Slurm's word of those that fail."""

    name: str
    title: str = ""
    source: str = ""
    verified: Verified = "docs"
    checked_on: str = ""
    template: str = "base.sbatch.j2"
    untrusted: bool = True
    ranked_min_isolation: int = 2
    max_time_s: float | None = None
    min_time_s: float | None = None
    wckey: str = ""
    mail: str = ""
    start_s: float = 60.0
    modules: tuple[str, ...] = ()
    module_init: str = ""
    proxy: str = ""
    python: str = "python3"
    exports: Mapping[str, str] = field(default_factory=dict)
    paths: Paths
    container: Container = field(default_factory=Container)
    submit: Submission = field(default_factory=Submission)
    slurm: Scheduler = field(default_factory=Scheduler)
    poll: Poll = field(default_factory=Poll)
    gpus: Mapping[str, GpuType]

    def image_of(self, gpu: GpuType) -> str:
        """The image that a job for this GPU starts, as a path on the compute node; empty without containers."""
        if not gpu.image or gpu.image.startswith("/"):
            return gpu.image_file
        return str((self.paths.image_dir or self.paths.shared_root / "images") / gpu.image_file)


@dataclass(frozen=True, kw_only=True)
class FleetNode:
    """One node as the scheduler shows it. GPUs by type; a type that Slurm doesn't name is `gpu`."""

    name: str
    partitions: tuple[str, ...]
    state: str
    gpus: Mapping[str, int]
    gpus_used: Mapping[str, int]
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether a job could start here, now or after others end."""
        words = self.state.upper().replace("*", "+").replace("$", "+").split("+")
        return not {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "MAINT", "UNKNOWN", "INVAL"} & set(words)


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A period for which the admins reserve some nodes."""

    name: str
    state: str
    nodes: str
    starts_at_s: int | None
    ends_at_s: int | None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A scheduler's view of its machines. `reader`: how it was read; `reader_why`: why not by pyslurm, where the site
    names one."""

    nodes: tuple[FleetNode, ...]
    reservations: tuple[Reservation, ...] = ()
    version: str = ""
    reader: str = "text"
    reader_why: str = ""

    def gpus(self, kind: str) -> tuple[int, int]:
        """(in use, usable) GPUs of this Slurm type."""
        usable = [node for node in self.nodes if node.usable]
        return sum(n.gpus_used.get(kind, 0) for n in usable), sum(n.gpus.get(kind, 0) for n in usable)
