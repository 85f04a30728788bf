"""Submits one small job for each GPU type, exchanges files with it, and reads what it saw on its node."""

from __future__ import annotations

import itertools
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from kbslurm.backends.slurm.doctor import rehearsal
from kbslurm.backends.slurm.doctor.checkup import Checkup
from kbslurm.backends.slurm.doctor.node import node_findings
from kbslurm.backends.slurm.doctor.node_facts import Sight, read_facts
from kbslurm.backends.slurm.doctor.probe_script import TURN_LENGTH, probe_script
from kbslurm.backends.slurm.doctor.shared_root import RACES, made_by_us
from kbslurm.domain.finding import Finding, caution, failed, unseen
from kbslurm.domain.site import GpuType, Site
from kbslurm.errors import BackendTrouble, KbslurmError
from kbslurm.flow.script import charging
from kbslurm_eval.shared.wire import Report

LOOK_S = 0.02
RACE_S = 30.0
ASK_EVERY_S = 10.0

LIVE_CHECKS = (
    "file latency, clocks, atomicity, container, namespaces, fuse, image, GPUs, memory limit, isolation as achieved, "
    "network and scratch of its nodes"
)


def unlooked(site: Site) -> list[Finding]:
    """What only a job can check."""
    return [
        unseen("node", LIVE_CHECKS, "kbslurm doctor --live submits one small job for it.", where=name)
        for name in site.gpus
    ]


def live_findings(checkup: Checkup) -> list[Finding]:
    """Run one small job per GPU type, concurrently; returns what each saw, in the order of the site's file."""
    gpus = list(checkup.site.gpus.values())
    with ThreadPoolExecutor(max(1, len(gpus))) as pool:
        return [finding for found in pool.map(lambda gpu: probe_node(checkup, gpu), gpus) for finding in found]


def probe_node(checkup: Checkup, gpu: GpuType) -> list[Finding]:
    """Submit one probe job for this GPU type, exchange files with it, read its results, clean up."""
    folder = Path(checkup.site.paths.shared_root) / f"doctor-{secrets.token_hex(6)}"
    job = ""
    try:
        (folder / "race").mkdir(parents=True, mode=0o700)
        _put(folder / "turn", "a" * TURN_LENGTH)
        inside = Path(__file__).with_name("inside_image.py")
        shutil.copyfile(inside, folder / "inside.py")
        rehearsed = rehearsal.prepare(
            checkup.site,
            gpu,
            folder,
            templates=checkup.templates,
            eval_dir=checkup.eval_dir,
            charged=checkup.charged,
        )
        paying = charging(checkup.site, gpu, checkup.charged)
        text = probe_script(checkup.site, paying, folder, checkup.templates)
        (folder / "job.sh").write_text(text, encoding="utf-8")
        answer = checkup.commands.run(
            "sbatch", ["--parsable", str(folder / "job.sh")], timeout_s=checkup.site.slurm.submit_timeout_s
        )
        job = answer.out.strip().partition(";")[0]
        if answer.status or not job.isdigit():
            remedy = "Correct request, partition, account, qos or constraint of this GPU type."
            return [failed("probe job", f"sbatch refused it: {answer.complaint}", remedy, where=gpu.name)]
        return _played(checkup, gpu, rehearsed, job)
    except KbslurmError as error:
        return [failed("probe job", error.message, error.hint or "Fix it and run the check again.", where=gpu.name)]
    except OSError as error:
        return [failed("probe job", f"{folder}: {error.strerror}", "Check the shared root.", where=gpu.name)]
    finally:
        if job and not (folder / "done").exists():
            with suppress(BackendTrouble):
                checkup.commands.run("scancel", [job])
        shutil.rmtree(folder, ignore_errors=True)


def _played(checkup: Checkup, gpu: GpuType, rehearsed: rehearsal.Rehearsal, job: str) -> list[Finding]:
    sight, folder = Sight(), rehearsed.folder
    if not _waited(checkup, folder / "ping", job):
        return [_absent(checkup, gpu, job, folder)]
    sight.ping_seen_at = checkup.clock()
    sight.ping_sent_at = _moment(folder / "ping")
    sight.pong_sent_at = checkup.clock()
    _put(folder / "pong", f"{sight.pong_sent_at:.6f}")
    sight.won_here = _race(checkup, folder)
    sight.raced = True
    over = _waited(checkup, folder / "done", job)
    sight.facts = read_facts(_text(folder / "facts.jsonl"))
    sight.won_there = tuple(int(line) for line in _text(folder / "race.node").split() if line.isdigit())
    if sight.fact("rehearsed") is not None:
        told = rehearsed.report()
        sight.report, sight.unreported = (told, "") if isinstance(told, Report) else (None, told)
    found = node_findings(checkup.site, gpu, sight, boards=checkup.boards.get(gpu.name))
    if not over:
        found.append(failed("probe job", "ended before it had finished", f"Its log: {_tail(folder)}", where=gpu.name))
    return found


def _waited(checkup: Checkup, file: Path, job: str) -> bool:
    """Wait for a file; give up on timeout, or when Slurm says that the job has ended without it."""
    began, asked_at, gone = checkup.clock(), checkup.clock(), 0
    while checkup.clock() - began < checkup.wait_s:
        if file in file.parent.iterdir():  # a listing refreshes NFS's cache of missing names
            return True
        if checkup.clock() - asked_at >= ASK_EVERY_S:
            asked_at = checkup.clock()
            gone = gone + 1 if _state(checkup, job) in ("", "ended") else 0
            if gone >= 2:
                return file.exists()
        checkup.sleep(LOOK_S)
    return False


def _state(checkup: Checkup, job: str) -> str:
    """The job's state and reason; empty if squeue no longer knows it."""
    answer = checkup.commands.run("squeue", ["-h", "-t", "all", "-o", "%T %r", "-j", f"{job},{job}"])
    word = answer.out.strip().partition("\n")[0]
    ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "PREEMPTED")
    return "ended" if word.startswith(ended) else word


def _absent(checkup: Checkup, gpu: GpuType, job: str, folder: Path) -> Finding:
    state = _state(checkup, job)
    if state.startswith("PENDING"):
        return caution(
            "probe job",
            f"didn't start within {checkup.wait_s:.0f} s ({state.partition(' ')[2] or 'pending'})",
            "Try again when a GPU of this type is free, or with a longer --wait.",
            where=gpu.name,
        )
    text = f"ran, but left nothing visible in {folder.parent} ({state or 'gone'}; its log: {_tail(folder)})"
    return failed(
        "probe job", text, "Check that shared_root is the same folder on the nodes; see also its log.", where=gpu.name
    )


def _race(checkup: Checkup, folder: Path) -> frozenset[int]:
    """Create the same folders as the job, and replace the file that it reads, until it has finished."""
    won = set()
    began = checkup.clock()
    while folder / "racing" not in folder.iterdir() and checkup.clock() - began < RACE_S:
        checkup.sleep(LOOK_S / 10)
    for turn in itertools.count():
        if turn < RACES and made_by_us(folder / "race" / str(RACES - 1 - turn)):  # the job starts from the other end
            won.add(RACES - 1 - turn)
        if folder / "raced" in folder.iterdir() or checkup.clock() - began > RACE_S:
            break
        _put(folder / "turn", "ab"[turn % 2] * TURN_LENGTH)
        checkup.sleep(LOOK_S / 10)
    return frozenset(won)


def _put(file: Path, text: str) -> None:
    fresh = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.replace(file)


def _moment(file: Path) -> float | None:
    try:
        return float(_text(file).strip())
    except ValueError:
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")[:1_000_000]
    except OSError:
        return ""


def _tail(folder: Path) -> str:
    return _text(folder / "log").strip().rpartition("\n")[2] or "empty"
