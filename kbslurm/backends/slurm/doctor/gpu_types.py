"""Whether a site's GPU types fit its partitions, and whether sbatch would accept their jobs."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbslurm.backends.paths import make_folder
from kbslurm.backends.slurm.doctor.checkup import Checkup
from kbslurm.backends.slurm.doctor.partitions import Partition, gpus_of, is_slice
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.run import JobName
from kbslurm.domain.site import GpuType
from kbslurm.errors import KbslurmError
from kbslurm.flow.script import script_for, supervisor_digest


def gpu_findings(gpu: GpuType, partitions: Sequence[Partition]) -> list[Finding]:
    """A GPU type's partition, its count, whether it is whole, how long its jobs may be."""
    found = list(_slice_findings(gpu))
    here = next((one for one in partitions if one.name == gpu.partition), None)
    if gpu.partition and partitions and here is None:
        known = ", ".join(one.name for one in partitions)
        return [
            *found,
            failed("partition", f"there is no partition {gpu.partition}", f"Choose one of: {known}.", where=gpu.name),
        ]
    if here is None:
        return found
    if not here.up:
        found.append(
            failed("partition", f"{here.name} is closed", "Ask the admins when it will reopen.", where=gpu.name)
        )
    if here.preemptible:
        found.append(
            caution(
                "partition",
                f"{here.name} can be preempted: preempted runs are restarted, at most three times",
                "Choose another partition if there is one.",
                where=gpu.name,
            )
        )
    if gpu.max_time_s is not None and here.max_time_s is not None and gpu.max_time_s > here.max_time_s:
        found.append(
            failed(
                "time limit",
                f"max_time is {gpu.max_time_s:.0f} s, but {here.name} allows {here.max_time_s:.0f} s",
                f'Set max_time = "{here.max_time_s:.0f}s".',
                where=gpu.name,
            )
        )
    found.append(_count_finding(gpu, here))
    return found


def rewritten(gpu: GpuType, key: str, has: str, asked: str | None = None) -> Finding | None:
    """What it means if a job has another partition, account or QOS than its script asks for: the site rewrites jobs, as
    by a job_submit plug-in. None if it has what it asked for, or asked for nothing."""
    wanted: str = getattr(gpu, key) if asked is None else asked
    if not wanted or not has or has in wanted.split(","):
        return None
    return caution(
        "rewritten",
        f"its jobs ask for {key} {wanted} but get {has}: this cluster changes jobs as they are submitted (job_submit)",
        f'Set {key} = "{has}" if the jobs belong there, so that limits and times are checked against the right one.',
        where=gpu.name,
    )


def _slice_findings(gpu: GpuType) -> Iterator[Finding]:
    sliced = any(is_slice(kind) for kind in (*gpus_of(gpu.request.partition("=")[2]), gpu.request, gpu.constraint))
    if sliced and gpu.whole:
        yield failed(
            "MIG",
            f"{gpu.request} is a part of a device, but the site's file says it is whole",
            "Set whole = false: others on that device disturb its timings, and its runs must not be called exclusive.",
            where=gpu.name,
        )


def _count_finding(gpu: GpuType, here: Partition) -> Finding:
    asked = next(iter(gpus_of(_with_count(gpu.request))), "")
    usable = here.gpus.get(asked, 0) if asked and asked in here.gpus else sum(here.gpus.values())
    if not usable:
        return caution("GPUs", f"{here.name} has no usable ones at the moment", "Ask the admins why.", where=gpu.name)
    if gpu.count > usable:
        return caution(
            "GPUs", f"count is {gpu.count}, but {usable} are usable", f"Set count = {usable}.", where=gpu.name
        )
    return passed("GPUs", f"{usable} in {here.name}, {gpu.slots} attempts at once", where=gpu.name)


def _with_count(request: str) -> str:
    """`--gpus=h100:1` and `--gpus-per-node=h100:1` as a gres."""
    value = request.partition("=")[2]
    return value if value.startswith("gpu") else f"gpu:{value}"


def script_in(checkup: Checkup, gpu: GpuType, folder: Path) -> str:
    """The script of a small job for this GPU type, with its files below this folder."""
    return script_for(
        checkup.site,
        name=JobName("kb-doctor"),
        gpu=gpu.name,
        directory=folder,
        harness=folder,
        supervisor=supervisor_digest(checkup.eval_dir),
        time_limit_s=60,
        memory_bytes=1 << 30,
        templates=checkup.templates,
        charged=checkup.charged,
    )


def request_finding(checkup: Checkup, gpu: GpuType) -> Finding:
    """Whether Slurm would accept this GPU type's job: a dry run of the real script."""
    folder = Path(checkup.site.paths.shared_root) / f"doctor-{secrets.token_hex(6)}"
    try:
        text = script_in(checkup, gpu, folder)
        make_folder(folder)
        (folder / "job.sh").write_text(text, encoding="utf-8")
        answer = checkup.commands.run("sbatch", ["--test-only", str(folder / "job.sh")])
    except KbslurmError as error:
        return failed("request", error.message, error.hint or "Correct the site's file.", where=gpu.name)
    except OSError as error:
        return failed(
            "request",
            f"{folder} can't be created: {error.strerror}",
            "See the finding on the shared root.",
            where=gpu.name,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if answer.status:
        return failed(
            "request",
            f"sbatch would refuse it: {answer.complaint}",
            "Correct request, partition, account, qos or constraint of this GPU type.",
            where=gpu.name,
        )
    told = re.search(r"\bin partition (\S+)", answer.err)
    if told and (other := rewritten(gpu, "partition", told[1])):
        return other
    return passed("request", f"sbatch would accept it ({gpu.request or 'no request'})", where=gpu.name)
