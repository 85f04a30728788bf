"""What the lines of a rendered job script come from: a note above each line that a site's file decides. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kbslurm.domain.site import GpuType, Site

MARK = "#: "


@dataclass(frozen=True, kw_only=True)
class Note:
    """A note on one line of a script, counted from 1."""

    line: int
    text: str


def notes_on(script: str, site: Site, gpu: GpuType) -> tuple[Note, ...]:
    """A note for each line that the site's file, the problem or the run decides, in the script's order."""
    table, told, found = list(_notes(site, gpu)), set[str](), []
    for number, line in enumerate(script.splitlines(), 1):
        texts = [text for pattern, text in table if pattern.search(line) and text not in told]
        told |= set(texts)
        if texts:
            found.append(Note(line=number, text="; ".join(texts)))
    return tuple(found)


def annotated(script: str, notes: tuple[Note, ...]) -> str:
    """The script with its notes as comments. It runs exactly as it would without them."""
    by_line = {note.line: note.text for note in notes}
    lines: list[str] = []
    for number, line in enumerate(script.splitlines(), 1):
        if number in by_line:
            lines.append(f"{MARK}{by_line[number]}")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _notes(site: Site, gpu: GpuType) -> Iterator[tuple[re.Pattern[str], str]]:
    """(what a line looks like, where it comes from)."""
    kind = f"[gpus.{gpu.name}]"
    least_s = site.min_time_s if gpu.min_time_s is None else gpu.min_time_s
    least = "" if least_s is None else f", and at least min_time ({least_s / 60:.0f} minutes) unless it only tests"
    payer = "each person's own cluster account pays" if gpu.charges_people else f"{kind} account"
    sbatch = {
        "partition": f"{kind} partition",
        "account": payer,
        "qos": f"{kind} qos",
        "constraint": f"{kind} constraint",
        "reservation": f"{kind} reservation",
        "exclusive": f"{kind} exclusive: the whole node",
        "licenses": f"{kind} licenses",
        "nice": f"{kind} nice: lowers the job's priority",
        "gpu-freq": f"{kind} gpu_freq: Slurm sets the device's clocks for the job",
        "wckey": "wckey",
        "mail-type": "mail: Slurm writes there when a job fails",
        "exclude": "nodes where this run, or many people's, failed before",
        "job-name": "random, and stored before sbatch is called: the job is found by it",
        "cpus-per-task": f"{kind} cpus",
        "mem": f"{kind} memory" if gpu.memory_mb else "the problem's memory, 1 GiB for the judge, and paths.scratch",
        "time": f"the problem's limits for this mode, `start`, and a minute{least}",
        "chdir": "the attempt's folder below paths.shared_root",
        "no-requeue": "the service starts a new attempt itself; the submitter's environment stays outside",
    }
    for option, text in sbatch.items():
        yield re.compile(rf"^#SBATCH\b.* --{option}(=|\s|$)"), text
    if gpu.request:
        yield re.compile(rf"^#SBATCH {re.escape(gpu.request.partition('=')[0])}="), f"{kind} request"
    for option in gpu.options:
        yield re.compile(rf"^#SBATCH '?{re.escape(option)}'?$"), f"{kind} options"
    yield re.compile(r"^EVAL="), "the harness, staged under a digest of its files"
    yield re.compile(r"^IMAGE="), f"{kind} image and image_tag"
    yield re.compile(r"^export http_proxy="), "proxy"
    yield re.compile(r"^module load"), "modules"
    for name in site.exports:
        yield re.compile(rf"^export {name}="), "exports"
    yield re.compile(r"^LIMIT_S="), "the supervisor's own limit in seconds; [paths] shm, scratch and node_scratch"
    yield re.compile(r"^RUNTIME="), f"[container] runtime; python; {kind} vendor and whole"
    yield re.compile(r"^CONTAINER="), "[container]: how every container of this job is started"
    yield re.compile(r"^PINNED="), f"{kind} image_digest and profiler"
    yield re.compile(r"^set_up$"), "private folders in memory and on the node's disk"
    yield re.compile(r"^supervise$"), "starts judge and runners, and ends them all"
