"""The corpus inside Apptainer: on the test cluster's login node, by the same job script that a site runs.

One Slurm job works through many attempts: for each of them it runs the script that the room `render` made for it, which
claims, starts the judge's container and a fresh container for every launch, and ends them all.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from kbslurm.backends.paths import AttemptPaths, make_folder
from kbslurm.backends.slurm.staged_harness import stage
from kbslurm.config import shared_folders
from kbslurm.domain.run import JobName
from kbslurm.domain.site import Site
from kbslurm.flow.script import attempts_folder, harness_folder, script_for, supervisor_digest
from kbslurm_eval.shared import wire
from tests.adversarial import corpus, trial
from tests.adversarial.trial import Trial
from tests.cluster.inside.site import site_at

LEVEL, GPU = 2, "H100"
JOBS = 2  # as many as the test machine has cores
ONE_BATCH_S = 3000.0
ONCE = wire.Budget(launches=1, calls=3)


def fits(entry: corpus.Entry) -> bool:
    """Whether it can be tried here: the test cluster's small image has Python and numpy, no torch."""
    return not entry.needs and 2 in entry.levels


def all_tried(
    entries: Sequence[corpus.Entry], folder: Path, *, in_full: bool = False, jobs: int = JOBS
) -> tuple[list[Trial], list[str]]:
    """A trial of each of these at each size, judged in containers; and what was left on the node once all had ended."""
    site = site_at(folder, memory="3G")
    root = attempts_folder(site)
    make_folder(root)
    stage(shared_folders.eval_dir(), Path(harness_folder(site, shared_folders.eval_dir())))
    wanted = [(entry, n) for entry in entries for n in _sizes(entry, in_full)]
    prepared = [_prepared(site, entry, n, in_full) for entry, n in wanted]
    names = [told.token for told, _ in prepared]
    before = _left()
    share_of = math.ceil(len(names) / jobs)
    batches = [
        _batch(site, root, names[at : at + share_of], f"kb-corpus-{at}") for at in range(0, len(names), share_of)
    ]
    for batch in batches:
        _ended(batch)
    trials = [
        _told(entry, n, told, key, AttemptPaths(root=root, name=JobName(told.token)))
        for (entry, n), (told, key) in zip(wanted, prepared, strict=True)
    ]
    return trials, sorted(_left() - before)


def _sizes(entry: corpus.Entry, in_full: bool) -> Sequence[int]:
    return entry.sizes() if in_full else [entry.size or corpus.SMALL[entry.problem]]


def _prepared(site: Site, entry: corpus.Entry, size: int, in_full: bool) -> tuple[wire.Manifest, bytes]:
    """The attempt's folder, as a submission makes it, its script included."""
    name, key = JobName(f"kb-{entry.name.replace('_', '-')}-{size}-{secrets.token_hex(3)}"), secrets.token_bytes(32)
    told = trial.manifest(entry, size, trial.QUICK if in_full else ONCE)
    if not in_full:  # without a twin beside it; and what isn't about time ends with the tests: a container less
        told = replace(told, config={}, mode=told.mode if _is_timed(entry) else "test")
    told = replace(told, token=name)
    paths = AttemptPaths(root=attempts_folder(site), name=name)
    script = script_for(
        site,
        name=name,
        gpu=GPU,
        directory=paths.dir,
        harness=harness_folder(site, shared_folders.eval_dir()),
        supervisor=supervisor_digest(shared_folders.eval_dir()),
        time_limit_s=told.limits.total_s + trial.GRACE_S,
        memory_bytes=told.limits.memory_bytes,
        templates=shared_folders.path("sbatch_templates"),
    )
    paths.create(manifest=wire.dumps(told), key=key, script=script)
    return told, key


def _is_timed(entry: corpus.Entry) -> bool:
    return entry.all_phases or entry.works_s > 0 or entry.group in ("timing", "precomputation", "persistence", "honest")


def _batch(site: Site, root: Path, names: Sequence[str], job: str) -> subprocess.Popen[str]:
    each = "\n".join(f"sh {shlex.quote(f'{root}/{n}/job.sh')} >{shlex.quote(f'{root}/{n}/log')} 2>&1" for n in names)
    gpu = site.gpus[GPU]
    argv = ["sbatch", "--wait", f"--partition={gpu.partition}", f"--job-name={job}", *gpu.request.split()]
    argv += ["--cpus-per-task=1", "--mem=3G", "--output=/dev/null", "--time=60"]
    batch = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert batch.stdin is not None
    batch.stdin.write(f"#!/bin/sh\n{each}\nexit 0\n")
    batch.stdin.close()
    return batch


def _ended(batch: subprocess.Popen[str]) -> None:
    assert batch.stdout is not None
    status = batch.wait(timeout=ONE_BATCH_S)
    if status:
        raise RuntimeError(f"sbatch --wait ended with status {status}: {batch.stdout.read()}")
    batch.stdout.close()


def _told(entry: corpus.Entry, size: int, told: wire.Manifest, key: bytes, paths: AttemptPaths) -> Trial:
    found = Trial(name=entry.name, group=entry.group, size=size, level="apptainer")
    if not paths.report.exists():
        log = paths.log.read_text(errors="replace")[-800:] if paths.log.exists() else "it never began"
        found.faults.append(f"no report: {log}")
        return found
    try:
        report = wire.unseal(paths.report.read_bytes(), key)
    except wire.WireError as error:
        found.faults.append(f"the report can't be read: {error}")
        return found
    found.took_s = (report.ended_at_ns - report.started_at_ns) / 1e9
    trial.judged(entry, told, report, key, found, LEVEL)
    if report.isolation.means != "apptainer":
        found.faults.append(f"judged in {report.isolation.means}, not in Apptainer")
    if not paths.exit.exists() or json.loads(paths.exit.read_text())["cause"] != "judge":
        found.faults.append("the job script didn't end as it should")
    return found


def _left() -> set[str]:
    """Shared memory, marked files and processes of runners on the node."""
    found = {f"it left {path}" for path in Path("/dev/shm").glob("kb-*")}
    for place in ("/tmp", "/var/tmp", "/dev/shm", str(Path.home())):
        found |= {f"it left {path}" for path in Path(place).glob(f"*{trial.MARKER}*")}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.getuid() and b"--runner" in (process / "cmdline").read_bytes():
                found.add(f"process {process.name} outlived the run")
        except OSError:
            continue
    return found


def main(names: Sequence[str], folder: Path, out: Path) -> None:
    """Inside, for `make adversarial`: these files in full; every trial a line of JSON."""
    entries = [entry for entry in (*corpus.cheats(), *corpus.honest()) if entry.name in names and fits(entry)]
    trials, left = all_tried(entries, folder, in_full=True)
    if left:
        trials.append(Trial(name="(the node)", group="", size=0, level="apptainer", faults=left))
    out.write_text("".join(json.dumps(asdict(one)) + "\n" for one in trials))


if __name__ == "__main__":
    main(sys.argv[3:], Path(sys.argv[1]) / f"corpus-{int(time.time())}", Path(sys.argv[2]))
