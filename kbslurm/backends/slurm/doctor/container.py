"""Whether a node can start containers, and what a submission can reach from inside one."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from kbslurm.backends.slurm.doctor.node_facts import Sight
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.site import GpuType, Site

SLOW_START_MS = 3000


def container_findings(site: Site, gpu: GpuType, sight: Sight, where: str) -> Iterator[Finding]:
    """The container program, the image, and what is seen from inside."""
    program = sight.fact("runtime")
    if program in (None, "none", ""):
        yield failed(
            "container program",
            f"{site.container.executable} isn't installed on the node",
            "Add its module to modules, or set program under [container] to its path.",
            where=where,
        )
        return
    mode = "setuid" if sight.fact("setuid") == "1" else "through user namespaces"
    yield passed("container program", f"{program}, {mode}", where=where)
    yield from _namespace_findings(site, sight, where)
    image = sight.fact("image")
    if image in (None, "none"):
        remedy = f"kbslurm image build or pull makes it at {site.image_of(gpu)}."
        yield failed("image on the node", f"{site.image_of(gpu)} doesn't exist", remedy, where=where)
        return
    found = sight.fact("image_digest")
    if found is not None and found != gpu.image_digest:
        yield failed(
            "image on the node",
            f"is {found}, but the site's file pins {gpu.image_digest}",
            "It was replaced or is damaged: build or pull it again.",
            where=where,
        )
    else:
        yield passed("image on the node", f"{image}{', as pinned' if found else ''}", where=where)
    yield from _start_findings(image or "", sight, where)
    if sight.fact("start_failed") is None:
        yield from _inside_findings(site, gpu, sight, where)


def _namespace_findings(site: Site, sight: Sight, where: str) -> Iterator[Finding]:
    setuid = sight.fact("setuid") == "1"
    if sight.fact("user_namespaces") == "yes":
        yield passed("user namespaces", "are allowed", where=where)
    elif setuid:
        yield passed("user namespaces", "aren't allowed, but the container program doesn't need them", where=where)
    else:
        yield failed(
            "user namespaces",
            "aren't allowed, and the container program has no setuid part",
            "Ask the admins for one of the two.",
            where=where,
        )
    if sight.fact("network_namespaces") == "yes" or setuid:
        yield passed("network namespaces", "are allowed", where=where)
    elif site.container.network == "none":
        yield failed(
            "network namespaces",
            "aren't allowed, but the site's file requires them",
            'Set network = "shared" under [container] and untrusted = false; or ask the admins.',
            where=where,
        )


def _start_findings(image: str, sight: Sight, where: str) -> Iterator[Finding]:
    if (why := sight.fact("start_failed")) is not None:
        yield failed(
            "container",
            f"doesn't start: {why or 'no reason given'}",
            "Check whether the image is damaged.",
            where=where,
        )
        return
    mounted = image.startswith("file") and sight.fact("setuid") != "1"
    if mounted and (sight.fact("squashfuse") != "yes" or sight.fact("fuse") != "yes"):
        lacks = "squashfuse isn't installed" if sight.fact("squashfuse") != "yes" else "/dev/fuse can't be opened"
        yield caution(
            "squashfuse",
            f"{lacks}, so the image is unpacked for every container",
            "Ask the admins for squashfuse and /dev/fuse, or use a directory image on the node's own disk.",
            where=where,
        )
    elif mounted:
        yield passed("squashfuse", "is there", where=where)
    times = [ms for name in ("start_ms_first", "start_ms_second") if (ms := sight.number(name)) is not None]
    if times and min(times) > SLOW_START_MS:
        yield caution(
            "container",
            f"takes {min(times) / 1000:.1f} s to start",
            "A directory image on the node is faster.",
            where=where,
        )
    elif times:
        yield passed("container", f"starts in {statistics.median(times) / 1000:.2f} s", where=where)


def _inside_findings(site: Site, gpu: GpuType, sight: Sight, where: str) -> Iterator[Finding]:
    if sight.fact("inside_python") is None:
        why = sight.fact("inside_failed") or "no output"
        yield failed(
            "python3", f"doesn't run in the image: {why}", "The image needs python3 3.11 or newer.", where=where
        )
        return
    version = sight.fact("inside_python") or "0"
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < (3, 11):
        yield failed("python3", f"{version} is too old in the image", "The image needs 3.11 or newer.", where=where)
    else:
        torch = sight.fact("inside_torch")
        yield passed("python3", f"{version} in the image{f', torch {torch}' if torch else ''}", where=where)
    yield from _caged_findings(site, sight, where)
    if gpu.vendor == "none":
        return
    seen = sight.number("inside_gpus") if sight.fact("inside_gpus") is not None else sight.number("inside_devices")
    if not seen:
        yield failed(
            "GPU in the container",
            "none is visible from inside",
            "Check vendor: --nv needs the driver's libraries on the node, --rocm /dev/kfd.",
            where=where,
        )
    elif seen > 1:
        yield caution(
            "GPU in the container",
            f"{seen:.0f} are visible from inside, but one was requested",
            "Ask the admins for ConstrainDevices=yes, or set exclusive = true.",
            where=where,
        )
    else:
        yield passed("GPU in the container", "one is visible from inside", where=where)


def _caged_findings(site: Site, sight: Sight, where: str) -> Iterator[Finding]:
    leaks = []
    if site.container.network == "none" and sight.fact("inside_network") == "yes":
        leaks.append("the internet")
    if sight.fact("inside_munge") == "yes":
        leaks.append("munge's socket")
    if sight.fact("inside_root_writable") == "yes":
        leaks.append("the image for writing")
    if leaks:
        yield failed(
            "isolation",
            f"a submission can reach {', '.join(leaks)}",
            "Check the container program's configuration (bind path, mount hostfs) and [container] options.",
            where=where,
        )
    else:
        yield passed("isolation", "no network, no munge, a read-only image, its own processes only", where=where)
