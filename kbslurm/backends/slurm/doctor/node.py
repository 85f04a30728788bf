"""What a probe job's facts mean: the node's modules, disks, cores, memory and GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kbslurm.backends.slurm.doctor.container import container_findings
from kbslurm.backends.slurm.doctor.file_exchange import atomicity_findings, delay_findings
from kbslurm.backends.slurm.doctor.gpu_types import rewritten
from kbslurm.backends.slurm.doctor.isolation import isolation_findings
from kbslurm.backends.slurm.doctor.node_facts import Sight
from kbslurm.backends.slurm.doctor.shared_root import FREE_MB
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.site import GpuType, Site

IDLE_THROTTLE = 0x1


def node_findings(site: Site, gpu: GpuType, sight: Sight, *, boards: Mapping[str, int] | None = None) -> list[Finding]:
    """What a node's facts mean. Pure."""
    where = f"{gpu.name} on {sight.fact('node') or 'its node'}"
    found = [*delay_findings(site, sight, where), *atomicity_findings(sight, where)]
    found += [one for key in ("partition", "qos") if (one := rewritten(gpu, key, sight.fact(f"job_{key}") or ""))]
    if not gpu.charges_people and (one := rewritten(gpu, "account", sight.fact("job_account") or "")):
        found.append(one)
    if sight.fact("prepared") is None:
        found.append(
            failed("modules", "the site's modules couldn't be loaded", "Fix modules or module_init.", where=where)
        )
        return found
    found += _disk_findings(site, sight, where)
    found += _core_findings(gpu, sight, where)
    found += _group_findings(sight, where)
    found += _gpu_node_findings(gpu, sight, where)
    found.append(
        passed("internet", f"from the node: {sight.fact('internet')}; runs have no access to it", where=where)
        if site.container.network == "none"
        else caution(
            "internet", "runs share the node's network", 'Set network = "none" under [container].', where=where
        )
    )
    if site.container.runtime != "none":
        found += container_findings(site, gpu, sight, where)
    found += isolation_findings(site, sight, boards or {}, where)
    return found


def _disk_findings(site: Site, sight: Sight, where: str) -> Iterator[Finding]:
    if site.paths.node_scratch:
        free_mb = sight.number("scratch_free_mb")
        if free_mb is None:
            yield failed("scratch", f"{site.paths.node_scratch} can't be used", "Fix node_scratch.", where=where)
        elif free_mb < FREE_MB:
            yield caution("scratch", f"{free_mb:.0f} MiB free", "Compiled kernels may not fit.", where=where)
        else:
            yield passed("scratch", f"{sight.fact('scratch')}, {free_mb / 1024:.0f} GiB left", where=where)
    elif sight.fact("tmpdir"):
        yield passed("TMPDIR", f"{sight.fact('tmpdir')}; runs write to memory, node_scratch isn't set", where=where)
    else:
        yield passed("TMPDIR", "isn't set here; runs write to memory, node_scratch isn't set", where=where)
    shm_mb = sight.number("shm_free_mb")
    if shm_mb is None:
        yield failed("shared memory", f"{site.paths.shm} can't be written", "Set shm under [paths].", where=where)
    else:
        yield passed("shared memory", f"{shm_mb:.0f} MiB left in {site.paths.shm}", where=where)


def _core_findings(gpu: GpuType, sight: Sight, where: str) -> Iterator[Finding]:
    cores = sight.number("cores") or 0
    if cores > gpu.cpus:
        yield caution(
            "cores",
            f"the job may use {cores:.0f} cores but requested {gpu.cpus}: jobs aren't confined to their own cores",
            "Ask the admins for TaskPlugin=task/affinity,task/cgroup; timings are disturbed without it.",
            where=where,
        )
    elif cores:
        all_of_them = cores >= (sight.number("cores_there") or 0)  # then nobody can tell
        whose = "all that this node has" if all_of_them else "its own"
        yield passed("cores", f"{cores:.0f}, {whose}", where=where)


def _group_findings(sight: Sight, where: str) -> Iterator[Finding]:
    limits = [float(text) for text in sight.facts.get("memory_limit_mb", ()) if text.isdigit()]
    asked = sight.number("memory_asked_mb")
    if asked is None:
        return
    if limits and min(limits) <= 1.25 * asked:
        yield passed("memory on the node", f"a control group limits the job to {min(limits):.0f} MiB", where=where)
    else:
        yield caution(
            "memory on the node",
            f"no control group limits this job to the {asked:.0f} MiB it requested; Slurm can only poll",
            "Ask the admins for ConstrainRAMSpace=yes; until then only the judge checks it, after each call.",
            where=where,
        )


def _gpu_node_findings(gpu: GpuType, sight: Sight, where: str) -> Iterator[Finding]:
    if gpu.vendor == "none":
        return
    opened, there = sight.number("devices_opened") or 0, sight.number("devices_there") or 0
    if not there:
        yield failed(
            "GPU",
            "there is no GPU device on that node",
            "Check that the request includes one; see gres.conf.",
            where=where,
        )
        return
    if opened > 1 and not gpu.exclusive:
        yield caution(
            "devices",
            f"the job can open {opened:.0f} of {there:.0f} GPUs, but requested one",
            "Ask the admins for ConstrainDevices=yes, or set exclusive = true: others' GPUs can be disturbed.",
            where=where,
        )
    else:
        yield passed("devices", f"{opened:.0f} of {there:.0f} GPUs can be opened", where=where)
    for line in sight.facts.get("gpu", ()):
        yield from _one_gpu(gpu, [part.strip() for part in line.split("|")], where)
    if sight.fact("profiling") == "1":
        yield caution("profiling", "is for administrators only", "Profile runs can't use it here.", where=where)


def _one_gpu(gpu: GpuType, told: Sequence[str], where: str) -> Iterator[Finding]:
    if len(told) != 7:
        return
    name, driver, mig, persistence, clock, most, throttle = told
    if mig == "Enabled" and gpu.whole:
        yield failed("MIG", f"{name} is partitioned (MIG)", "Set whole = false, or request whole devices.", where=where)
    with suppress(ValueError):
        if int(throttle, 16) & ~IDLE_THROTTLE:
            yield caution(
                "GPU's clock",
                f"{name} is throttled now ({throttle})",
                "Check power cap, temperature and clock settings.",
                where=where,
            )
    if persistence == "Disabled":
        yield caution(
            "GPU", "persistence mode is off: first starts are slow", "Ask for nvidia-persistenced.", where=where
        )
    yield passed("GPU", f"{name}, driver {driver}, {clock} of {most} MHz", where=where)
