"""What `kbslurm doctor --site` looks at: the scheduler and the shared root from here, and each kind of node from a job.

Reading and grading are pure; asking is not. A question that isn't answered is a finding, never an exception.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
import shlex
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import jinja2

from kbslurm.backends.paths import make_folder, rename_folder
from kbslurm.backends.slurm import rehearsal
from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.survey import (
    GRES_FORMAT,
    Partition,
    gpus_of,
    has_accounting,
    is_slice,
    read_partitions,
    read_settings,
    read_version,
)
from kbslurm.domain.apptainer import ApptainerCommand, Bind
from kbslurm.domain.finding import Finding, caution, failed, passed, unseen
from kbslurm.domain.run import JobName
from kbslurm.domain.site import GpuType, Site
from kbslurm.errors import BackendTrouble, KbslurmError, Misconfigured
from kbslurm.flow.script import ShellText, node_text, script_for, shell_quoted
from kbslurm_eval.wire import Report

OLDEST = (20, 11)
SSH_FAILED = 255  # its own status, not that of the command there
RACES = 60
TURN_LENGTH = 4096
PROBE_MINUTES = 10
NODE_WAIT_S = 300.0
LOOK_S = 0.02
RACE_S = 30.0
ASK_EVERY_S = 10.0
FREE_MB = 1024
SLOW_START_MS = 3000
LATE_S = 10.0
OFF_S = 2.0
IDLE_THROTTLE = 0x1

LIVE_CHECKS = (
    "letter box, clocks, atomicity, container, namespaces, fuse, image, GPUs, memory limit, isolation as achieved, "
    "network and scratch of its nodes"
)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where a site is looked at from. `boards`: by GPU type, the isolation that each asks of a run to rank. `clock` is
    the wall clock in seconds, `sleep` how waiting is done."""

    site: Site
    commands: Commands
    templates: Path
    eval_dir: Path
    boards: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wait_s: float = NODE_WAIT_S
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


# ------------------------------------------------------------------------------------------------- from the login node


def login_findings(ground: Ground) -> list[Finding]:
    """All that can be seen without a job: the scheduler's settings, each GPU type's request, the shared root."""
    site, commands = ground.site, ground.commands
    version = _asked(commands, "sinfo", "-V")
    if isinstance(version, Finding):
        return [version, *root_findings(site)]
    found = [version_finding(version)]
    began = ground.clock()
    config = _asked(commands, "scontrol", "show", "config")
    if isinstance(config, Finding):
        return [*found, config, *root_findings(site)]
    settings = read_settings(config)
    took_s = ground.clock() - began
    found += setting_findings(site, settings, now=began + took_s / 2, slack_s=took_s / 2)
    if site.slurm.accounting and has_accounting(settings):
        found.append(_sacct_finding(commands))
    sinfo = _asked(commands, "sinfo", "-h", "-a", "-o", GRES_FORMAT)
    told = _asked(commands, "scontrol", "-o", "show", "partition")
    for answer in (sinfo, told):
        if isinstance(answer, Finding):
            found.append(answer)
    partitions = read_partitions(sinfo, told) if isinstance(sinfo, str) and isinstance(told, str) else ()
    for gpu in site.gpus.values():
        found += gpu_findings(gpu, partitions)
    roots = root_findings(site)
    found += roots
    if all(finding.grade != "FAIL" for finding in roots):
        found += [_request_finding(ground, gpu) for gpu in site.gpus.values()]
    return found


def _asked(commands: Commands, tool: str, *arguments: str) -> str | Finding:
    """What the command printed, or the finding that it doesn't answer."""
    try:
        answer = commands.run(tool, arguments)
    except BackendTrouble as error:
        return failed(tool, error.message, error.hint or "Is this a login node of that cluster? See bin_dir and conf.")
    far = commands.site.submit
    if far.via == "ssh" and answer.status == SSH_FAILED:
        words = ["ssh", *(("-i", far.identity) if far.identity else ()), *(("-l", far.user) if far.user else ())]
        hand = shlex.join([*words, "-p", str(far.port), far.host, "true"])
        return failed(f"ssh to {far.host}", answer.complaint, f"Correct [submit] until this works by hand: {hand}")
    if answer.status:
        return failed(tool, answer.complaint, "Is the controller up? Ask the admins (scontrol ping).")
    return answer.out


def version_finding(text: str) -> Finding:
    """Slurm's version against what this was made for."""
    version = read_version(text)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if len(numbers) < 2:
        return caution(
            "Slurm", f"its version can't be read: {text.strip()!r}", "Report it, with the output of sinfo -V."
        )
    if numbers < OLDEST:
        return caution("Slurm", f"{version} is older than what this was made for", "20.11 or newer is what is tested.")
    return passed("Slurm", version)


def setting_findings(site: Site, settings: Mapping[str, str], *, now: float, slack_s: float = 0.0) -> list[Finding]:
    """What Slurm's own settings mean for us. They were answered at `now`, give or take `slack_s`."""
    return [
        _accounting_finding(site, settings),
        _job_age_finding(site, settings),
        _rate_finding(site, settings),
        _delay_finding(settings),
        _device_finding(settings),
        _memory_finding(settings),
        *_clock_findings(settings, now, slack_s),
        *_requeue_findings(settings),
    ]


def _accounting_finding(site: Site, settings: Mapping[str, str]) -> Finding:
    there = has_accounting(settings)
    if site.slurm.accounting and not there:
        return failed(
            "accounting", "the site's file counts on it and Slurm has none", "Set accounting = false under [slurm]."
        )
    if not there:
        return caution(
            "accounting",
            "is off: what ended is known from the job's own files and from squeue only",
            "Nothing has to be done; a job that vanishes without its files takes longer to be understood.",
        )
    if not site.slurm.accounting:
        return caution(
            "accounting", "is there, and the site's file says not to use it", "Set accounting = true under [slurm]."
        )
    return passed("accounting", settings["AccountingStorageType"])


def _job_age_finding(site: Site, settings: Mapping[str, str]) -> Finding:
    age_s = _seconds(settings.get("MinJobAge", ""))
    least_s = 3 * site.poll.min_interval_s
    if age_s is None:
        return caution("MinJobAge", "isn't shown", "Ask the admins; 300 s is usual.")
    if age_s >= least_s:
        return passed("MinJobAge", f"squeue shows an ended job for {age_s:.0f} s")
    text = f"squeue forgets an ended job after {age_s:.0f} s, and is asked every {site.poll.min_interval_s:g} s"
    remedy = "Ask the admins for a longer MinJobAge, or lower min_interval under [poll] if they allow it."
    if has_accounting(settings) and site.slurm.accounting:
        return caution("MinJobAge", f"{text}; sacct has to be asked instead", remedy)
    return caution("MinJobAge", f"{text}, and there is no accounting: only the job's own files will tell", remedy)


def _rate_finding(site: Site, settings: Mapping[str, str]) -> Finding:
    told = settings.get("SlurmctldParameters", "")
    if "rl_enable" not in told:
        return passed("rate limits", f"none; we ask {site.poll.calls_per_minute:g} times a minute at most")
    refill = re.search(r"rl_refill_rate=(\d+)", told)
    period = re.search(r"rl_refill_period=(\d+)", told)
    per_minute = 60 * int(refill[1] if refill else 2) / int(period[1] if period else 1)
    text = f"Slurm lets a user ask {per_minute:g} times a minute; we ask {site.poll.calls_per_minute:g} times at most"
    if site.poll.calls_per_minute <= per_minute:
        return passed("rate limits", text)
    return caution(
        "rate limits", text, f"Set calls_per_minute = {per_minute:g} under [poll]: what is over it only waits."
    )


def _delay_finding(settings: Mapping[str, str]) -> Finding:
    found = re.search(r"batch_sched_delay=(\d+)", settings.get("SchedulerParameters", ""))
    delay_s = int(found[1]) if found else 3
    if delay_s <= 3:
        return passed("start delay", f"batch_sched_delay is {delay_s} s")
    return caution(
        "start delay", f"a job waits {delay_s} s even when GPUs are free", "Ask for a lower batch_sched_delay."
    )


def _device_finding(settings: Mapping[str, str]) -> Finding:
    constrained = settings.get("ConstrainDevices", "").lower()
    if constrained == "yes" and "task/cgroup" in settings.get("TaskPlugin", "task/cgroup"):
        return passed("device isolation", "Slurm shows a job its own GPUs only (ConstrainDevices)")
    return caution(
        "device isolation",
        "Slurm doesn't keep a job from other jobs' GPUs (ConstrainDevices isn't on)",
        "Ask the admins for ConstrainDevices=yes in cgroup.conf with TaskPlugin=task/cgroup, or use exclusive = true.",
    )


def _memory_finding(settings: Mapping[str, str]) -> Finding:
    """How Slurm keeps jobs to the memory that they asked for: by a control group, by looking, or not at all."""
    remedy = "Ask the admins for ConstrainRAMSpace=yes in cgroup.conf with TaskPlugin=task/cgroup."
    grouped = settings.get("ConstrainRAMSpace", "").lower() == "yes" and "task/cgroup" in settings.get("TaskPlugin", "")
    looked = "OverMemoryKill" in settings.get("JobAcctGatherParams", "")
    if not grouped and not looked:
        text = "nothing keeps a job to its memory: one that takes more can end its neighbours before the judge looks"
        return caution("memory limit", text, f"{remedy} Or set exclusive = true.")
    if "MEMORY" not in settings.get("SelectTypeParameters", "").upper():
        text = "memory isn't handed out (SelectTypeParameters): jobs of a node can be promised more than there is"
        return caution("memory limit", text, "Ask the admins for CR_Core_Memory, or set exclusive = true.")
    if grouped:
        return passed("memory limit", "kept by a control group of each job (ConstrainRAMSpace)")
    every = re.search(r"task=(\d+)|^(\d+)", settings.get("JobAcctGatherFrequency", ""))
    seconds = (every[1] or every[2]) if every else "30"
    return passed("memory limit", f"Slurm looks every {seconds} s and ends a job that is over it (OverMemoryKill)")


def _clock_findings(settings: Mapping[str, str], now: float, slack_s: float) -> Iterator[Finding]:
    told = settings.get("answered at")
    if told is None:
        return
    off_s = now - float(told)
    if abs(off_s) > OFF_S + slack_s:
        yield caution(
            "controller's clock",
            f"differs from ours by about {abs(off_s):.0f} s",
            "Have both clocks set by the same time server: waiting times are wrong by that much.",
        )
    else:
        yield passed("controller's clock", f"agrees with ours within {max(1.0, abs(off_s)):.0f} s")


def _requeue_findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    if "ForceRequeueOnFail" in settings.get("PrologFlags", ""):
        yield caution(
            "requeue",
            "Slurm requeues jobs whose prolog fails, whatever we ask for (ForceRequeueOnFail)",
            "Nothing has to be done: a job that comes back finds its attempt claimed; it costs two minutes.",
        )


def _sacct_finding(commands: Commands) -> Finding:
    answer = _asked(commands, "sacct", "-X", "-n", "-P", "-S", "now-1minutes", "-o", "JobIDRaw")
    return answer if isinstance(answer, Finding) else passed("sacct", "answers")


def _seconds(text: str) -> float | None:
    found = re.match(r"(\d+)", text)
    return float(found[1]) if found else None


def gpu_findings(gpu: GpuType, partitions: Sequence[Partition]) -> list[Finding]:
    """A GPU type's partition, its count, whether it is whole, how long its jobs may be."""
    found = list(_slice_findings(gpu))
    here = next((one for one in partitions if one.name == gpu.partition), None)
    if gpu.partition and partitions and here is None:
        known = ", ".join(one.name for one in partitions)
        return [*found, failed("partition", f"there is no {gpu.partition}", f"Choose one of: {known}.", where=gpu.name)]
    if here is None:
        return found
    if not here.up:
        found.append(failed("partition", f"{here.name} is closed", "Ask the admins until when.", where=gpu.name))
    if here.preemptible:
        found.append(
            caution(
                "partition",
                f"{here.name} can be preempted: such runs start again, three times at most",
                "Choose another partition if there is one.",
                where=gpu.name,
            )
        )
    if gpu.max_time_s is not None and here.max_time_s is not None and gpu.max_time_s > here.max_time_s:
        found.append(
            failed(
                "time limit",
                f"max_time is {gpu.max_time_s:.0f} s and {here.name} gives {here.max_time_s:.0f} s",
                f'Set max_time = "{here.max_time_s:.0f}s".',
                where=gpu.name,
            )
        )
    found.append(_count_finding(gpu, here))
    return found


def _slice_findings(gpu: GpuType) -> Iterator[Finding]:
    sliced = any(is_slice(kind) for kind in (*gpus_of(gpu.request.partition("=")[2]), gpu.request, gpu.constraint))
    if sliced and gpu.whole:
        yield failed(
            "MIG",
            f"{gpu.request} is a part of a device, and the site's file calls it whole",
            "Set whole = false: others on that device disturb its timings, and its runs must not be called exclusive.",
            where=gpu.name,
        )


def _count_finding(gpu: GpuType, here: Partition) -> Finding:
    asked = next(iter(gpus_of(_with_count(gpu.request))), "")
    usable = here.gpus.get(asked, 0) if asked and asked in here.gpus else sum(here.gpus.values())
    if not usable:
        return caution("GPUs", f"{here.name} has none that could be used now", "Ask the admins why.", where=gpu.name)
    if gpu.count > usable:
        return caution(
            "GPUs", f"count says {gpu.count}, and {usable} can be used", f"Set count = {usable}.", where=gpu.name
        )
    return passed("GPUs", f"{usable} in {here.name}, {gpu.slots} attempts at once", where=gpu.name)


def _with_count(request: str) -> str:
    """`--gpus=h100:1` and `--gpus-per-node=h100:1` as a gres."""
    value = request.partition("=")[2]
    return value if value.startswith("gpu") else f"gpu:{value}"


def _request_finding(ground: Ground, gpu: GpuType) -> Finding:
    """Whether Slurm would take the job of this GPU type: the real script, not submitted."""
    folder = Path(ground.site.paths.shared_root) / f"doctor-{secrets.token_hex(6)}"
    try:
        text = script_for(
            ground.site,
            name=JobName("kb-doctor"),
            gpu=gpu.name,
            directory=folder,
            harness=folder,
            time_limit_s=60,
            memory_bytes=1 << 30,
            templates=ground.templates,
        )
        make_folder(folder)
        (folder / "job.sh").write_text(text, encoding="utf-8")
        answer = ground.commands.run("sbatch", ["--test-only", str(folder / "job.sh")])
    except KbslurmError as error:
        return failed("request", error.message, error.hint or "Correct the site's file.", where=gpu.name)
    except OSError as error:
        return failed("request", f"{folder} can't be made: {error.strerror}", "See the shared root.", where=gpu.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if answer.status:
        return failed(
            "request",
            f"sbatch would refuse it: {answer.complaint}",
            "Correct request, partition, account, qos or constraint of this GPU type.",
            where=gpu.name,
        )
    return passed("request", f"sbatch would take it ({gpu.request or 'no request'})", where=gpu.name)


# ------------------------------------------------------------------------------------------------------ the shared root


def root_findings(site: Site) -> list[Finding]:
    """Whether the shared root can be written, has room, is ours alone, and makes folders and renames in one step."""
    root = Path(site.paths.shared_root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        trial = root / f"doctor-{secrets.token_hex(6)}"
        make_folder(trial)
    except OSError as error:
        return [
            failed(
                "shared root", f"{root} can't be written: {error.strerror}", "Make it, for the service's account only."
            )
        ]
    try:
        return [_room_finding(root), _privacy_finding(root), _mkdir_finding(trial), _rename_finding(trial)]
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _room_finding(root: Path) -> Finding:
    free_mb = shutil.disk_usage(root).free >> 20
    if free_mb < FREE_MB:
        return caution("shared root", f"{root} has {free_mb} MiB left", "Make room: a full disk fails every run.")
    return passed("shared root", f"{root} can be written, {free_mb >> 10} GiB left")


def _privacy_finding(root: Path) -> Finding:
    mode = root.stat().st_mode & 0o777
    if mode & 0o022:
        return failed("shared root's mode", f"{root} can be written by others ({mode:o})", f"chmod go-w {root}")
    return passed("shared root's mode", f"{mode:o}: attempts below it are 700 each")


def _mkdir_finding(trial: Path) -> Finding:
    """Four at once try to make the same folders: each must be made exactly once."""
    names = [trial / f"made-{n}" for n in range(RACES)]
    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(lambda _: sum(map(_made, names)), range(4)))
    if won == len(names):
        return passed("mkdir", f"{won} folders, each made once by one of four")
    return failed(
        "mkdir",
        f"{len(names)} folders were made {won} times: an attempt could run twice",
        "Use another file system for shared_root: this one breaks the claim of an attempt.",
    )


def _made(folder: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _rename_finding(trial: Path) -> Finding:
    old, new, full = trial / "old", trial / "new", trial / "full"
    old.write_text("old")
    new.write_text("new")
    new.replace(old)
    (full / "content").mkdir(parents=True)
    fresh = trial / "fresh"
    fresh.mkdir()
    if old.read_text() == "new" and not new.exists() and not rename_folder(fresh, full):
        return passed("rename", "replaces a file in one step, and never a folder that holds something")
    return failed("rename", "doesn't do what a local disk does", "Use another file system for shared_root.")


# ------------------------------------------------------------------------------------------------------------ the nodes


def unlooked(site: Site) -> list[Finding]:
    """What only a job could see."""
    return [
        unseen("node", LIVE_CHECKS, "kbslurm doctor --live submits one small job for it.", where=name)
        for name in site.gpus
    ]


def live_findings(ground: Ground) -> list[Finding]:
    """One small job per GPU type, all at once; what each saw, in the order of the site's file."""
    gpus = list(ground.site.gpus.values())
    with ThreadPoolExecutor(max(1, len(gpus))) as pool:
        return [finding for found in pool.map(lambda gpu: probe_node(ground, gpu), gpus) for finding in found]


@dataclass(kw_only=True)
class Sight:
    """What a probe job and we saw together. Times are in seconds since the epoch, each by its own side's clock."""

    facts: Mapping[str, list[str]] = field(default_factory=dict)
    ping_sent_at: float | None = None
    ping_seen_at: float | None = None
    pong_sent_at: float | None = None
    won_here: frozenset[int] = frozenset()
    won_there: tuple[int, ...] = ()
    raced: bool = False
    report: Report | None = None
    unreported: str = ""

    def fact(self, name: str) -> str | None:
        """The last thing that was said by this name."""
        return self.facts[name][-1] if self.facts.get(name) else None

    def number(self, name: str) -> float | None:
        """The same as a number."""
        try:
            return float(self.fact(name) or "")
        except ValueError:
            return None


def probe_node(ground: Ground, gpu: GpuType) -> list[Finding]:
    """Submit one probe job for this GPU type, play its games, read what it wrote, clean up."""
    folder = Path(ground.site.paths.shared_root) / f"doctor-{secrets.token_hex(6)}"
    job = ""
    try:
        (folder / "race").mkdir(parents=True, mode=0o700)
        _put(folder / "turn", "a" * TURN_LENGTH)
        inside = Path(__file__).with_name("inside.py")
        shutil.copyfile(inside, folder / "inside.py")
        rehearsed = rehearsal.prepare(ground.site, gpu, folder, templates=ground.templates, eval_dir=ground.eval_dir)
        text = probe_script(ground.site, gpu, folder, ground.templates)
        (folder / "job.sh").write_text(text, encoding="utf-8")
        answer = ground.commands.run(
            "sbatch", ["--parsable", str(folder / "job.sh")], timeout_s=ground.site.slurm.submit_timeout_s
        )
        job = answer.out.strip().partition(";")[0]
        if answer.status or not job.isdigit():
            remedy = "Correct request, partition, account, qos or constraint of this GPU type."
            return [failed("probe job", f"sbatch refused it: {answer.complaint}", remedy, where=gpu.name)]
        return _played(ground, gpu, rehearsed, job)
    except KbslurmError as error:
        return [failed("probe job", error.message, error.hint or "Correct it and look again.", where=gpu.name)]
    except OSError as error:
        return [failed("probe job", f"{folder}: {error.strerror}", "Look at the shared root.", where=gpu.name)]
    finally:
        if job and not (folder / "done").exists():
            with suppress(BackendTrouble):
                ground.commands.run("scancel", [job])
        shutil.rmtree(folder, ignore_errors=True)


def _played(ground: Ground, gpu: GpuType, rehearsed: rehearsal.Rehearsal, job: str) -> list[Finding]:
    sight, folder = Sight(), rehearsed.folder
    if not _waited(ground, folder / "ping", job):
        return [_absent(ground, gpu, job, folder)]
    sight.ping_seen_at = ground.clock()
    sight.ping_sent_at = _moment(folder / "ping")
    sight.pong_sent_at = ground.clock()
    _put(folder / "pong", f"{sight.pong_sent_at:.6f}")
    sight.won_here = _race(ground, folder)
    sight.raced = True
    over = _waited(ground, folder / "done", job)
    sight.facts = read_facts(_text(folder / "facts.jsonl"))
    sight.won_there = tuple(int(line) for line in _text(folder / "race.node").split() if line.isdigit())
    if sight.fact("rehearsed") is not None:
        told = rehearsed.report()
        sight.report, sight.unreported = (told, "") if isinstance(told, Report) else (None, told)
    found = node_findings(ground.site, gpu, sight, boards=ground.boards.get(gpu.name))
    if not over:
        found.append(failed("probe job", "ended before it was through", f"Its log: {_tail(folder)}", where=gpu.name))
    return found


def _waited(ground: Ground, file: Path, job: str) -> bool:
    """Wait for a file; give up when the time is over, or when Slurm says that the job has ended without it."""
    began, asked_at, gone = ground.clock(), ground.clock(), 0
    while ground.clock() - began < ground.wait_s:
        if file in file.parent.iterdir():  # a listing refreshes what NFS remembers of a name that wasn't there
            return True
        if ground.clock() - asked_at >= ASK_EVERY_S:
            asked_at = ground.clock()
            gone = gone + 1 if _state(ground, job) in ("", "ended") else 0
            if gone >= 2:
                return file.exists()
        ground.sleep(LOOK_S)
    return False


def _state(ground: Ground, job: str) -> str:
    """The job's state word and reason; empty when squeue doesn't know it any more."""
    answer = ground.commands.run("squeue", ["-h", "-t", "all", "-o", "%T %r", "-j", f"{job},{job}"])
    word = answer.out.strip().partition("\n")[0]
    ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "PREEMPTED")
    return "ended" if word.startswith(ended) else word


def _absent(ground: Ground, gpu: GpuType, job: str, folder: Path) -> Finding:
    state = _state(ground, job)
    if state.startswith("PENDING"):
        return caution(
            "probe job",
            f"didn't start within {ground.wait_s:.0f} s ({state.partition(' ')[2] or 'pending'})",
            "Look again when a GPU of this type is free, or with a longer --wait.",
            where=gpu.name,
        )
    text = f"ran, but nothing of it was seen in {folder.parent} ({state or 'gone'}; its log: {_tail(folder)})"
    return failed("probe job", text, "Is shared_root the same folder on the nodes? See also its log.", where=gpu.name)


def _race(ground: Ground, folder: Path) -> frozenset[int]:
    """Make the folders that the job makes, too, and replace the file that it reads, until it is through."""
    won = set()
    began = ground.clock()
    while folder / "racing" not in folder.iterdir() and ground.clock() - began < RACE_S:
        ground.sleep(LOOK_S / 10)
    for turn in itertools.count():
        if turn < RACES and _made(folder / "race" / str(RACES - 1 - turn)):  # the job comes from the other end
            won.add(RACES - 1 - turn)
        if folder / "raced" in folder.iterdir() or ground.clock() - began > RACE_S:
            break
        _put(folder / "turn", "ab"[turn % 2] * TURN_LENGTH)
        ground.sleep(LOOK_S / 10)
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


def read_facts(text: str) -> dict[str, list[str]]:
    """The lines of a probe job by name. A line that isn't one is left out."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            found.setdefault(str(told["name"]), []).append(str(told["value"]))
    return found


# ------------------------------------------------------------------------------------------------------ the probe's job


def probe_script(site: Site, gpu: GpuType, folder: PurePath, templates: Path) -> str:
    """The probe job's script: requested and prepared exactly as an attempt of this site is."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        finalize=shell_quoted,
        autoescape=False,  # noqa: S701 - it is no HTML; `finalize` quotes every value for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    memory_mb = max(gpu.memory_mb or 0, 2048) + site.paths.scratch_mb
    values: dict[str, object] = {
        "site": site,
        "gpu": gpu,
        "job_name": f"kb-probe-{folder.name.removeprefix('doctor-')}",
        "directory": str(folder),
        "memory": f"{memory_mb}M",
        "memory_mb": memory_mb,
        "rehearsal": rehearsal.SCRIPT,
        "minutes": PROBE_MINUTES,
        "races": RACES,
        "turn_length": TURN_LENGTH + 1,
        "image": site.image_of(gpu),
        "digest": gpu.image_digest if gpu.image_digest.startswith("sha256:") else "",
        "contained": site.container.runtime != "none",
        "runtime": site.container.executable,
        "scratch": ShellText(node_text(site.paths.node_scratch)) if site.paths.node_scratch else "",
        "start": ShellText(_contained(site, gpu, folder, ("/bin/true",))),
        "inside": ShellText(_contained(site, gpu, folder, ("python3", "-I", "-B", "/probe/inside.py"))),
    }
    try:
        for name in ("request", "prepare"):
            values[name] = ShellText(_block(environment, site.template, name, values))
        return environment.get_template("probe.sh.j2").render(values)
    except jinja2.TemplateError as error:
        file = getattr(error, "filename", None) or templates / site.template
        line = getattr(error, "lineno", None)
        raise Misconfigured(error.message, file=Path(file), line=line, fix="Correct the template.") from None


def _block(environment: jinja2.Environment, template: str, name: str, values: Mapping[str, object]) -> str:
    """One block of a template as its nearest child has it, `super()` included."""
    chain: list[jinja2.Template] = []
    following: str | None = template
    while following is not None:
        chain.append(environment.get_template(following))
        source, _, _ = environment.loader.get_source(environment, following)  # type: ignore[union-attr]
        following = next(iter(_extended(environment, source)), None)
    blocks = [one.blocks[name] for one in chain if name in one.blocks]
    context = chain[0].new_context(dict(values))
    context.blocks[name] = blocks
    return "".join(blocks[0](context)) if blocks else ""


def _extended(environment: jinja2.Environment, source: str) -> Iterator[str]:
    for node in environment.parse(source).find_all(jinja2.nodes.Extends):
        yield str(node.template.as_const())


def _contained(site: Site, gpu: GpuType, folder: PurePath, command: tuple[str, ...]) -> str:
    if site.container.runtime == "none":
        return ":"
    return ApptainerCommand(
        program=site.container.executable,
        image="@IMAGE@",
        vendor=gpu.vendor,
        network=site.container.network,
        binds=(Bind(source=f"{folder}/inside.py", target="/probe/inside.py"),),
        workdir="@SCRATCH@" if site.paths.node_scratch else "",
        pwd="/",
        options=site.container.options,
        command=command,
    ).shell()


# -------------------------------------------------------------------------------------------------------------- grading


def node_findings(site: Site, gpu: GpuType, sight: Sight, *, boards: Mapping[str, int] | None = None) -> list[Finding]:
    """What a node's facts mean. Pure."""
    where = f"{gpu.name} on {sight.fact('node') or 'its node'}"
    found = [*_letter_findings(site, sight, where), *_atomic_findings(sight, where)]
    if sight.fact("prepared") is None:
        found.append(
            failed("modules", "the site's modules couldn't be loaded", "Correct modules or module_init.", where=where)
        )
        return found
    found += _disk_findings(site, sight, where)
    found += _core_findings(gpu, sight, where)
    found += _group_findings(sight, where)
    found += _gpu_node_findings(gpu, sight, where)
    found.append(
        passed("internet", f"from the node: {sight.fact('internet')}; a run gets none of it", where=where)
        if site.container.network == "none"
        else caution(
            "internet", "runs share the node's network", 'Set network = "none" under [container].', where=where
        )
    )
    if site.container.runtime != "none":
        found += _container_findings(site, gpu, sight, where)
    found += _achieved_findings(site, sight, boards or {}, where)
    return found


def _letter_findings(site: Site, sight: Sight, where: str) -> Iterator[Finding]:
    told = (sight.ping_sent_at, sight.ping_seen_at, sight.pong_sent_at, sight.number("pong_seen_at"))
    if any(moment is None for moment in told):
        yield caution("letter box", "wasn't measured", "Look again.", where=where)
        return
    there_sent, here_seen, here_sent, there_seen = (moment or 0.0 for moment in told)
    forth_s, back_s = here_seen - there_sent, there_seen - here_sent
    off_s, trip_s = (forth_s - back_s) / 2, forth_s + back_s
    if abs(off_s) > max(OFF_S, trip_s / 2):
        yield caution(
            "clocks",
            f"the node's differs from ours by about {abs(off_s):.1f} s",
            "Ask the admins for a time server: waiting times are wrong by that much, scores are not.",
            where=where,
        )
    else:
        yield passed("clocks", f"node and login node agree within {max(abs(off_s), 0.05):.2f} s", where=where)
    late_s = max(0.0, trip_s) / 2
    text = (
        f"a file written on the node is seen here after about {late_s:.2f} s ({max(0.0, trip_s):.2f} s forth and back)"
    )
    if late_s > LATE_S:
        yield caution("letter box", text, "Put shared_root on a file system with less caching.", where=where)
    else:
        yield passed("letter box", text, where=where)
    if late_s > max(1.0, site.paths.visibility_delay_s):
        yield caution(
            "visibility",
            f"visibility_delay is {site.paths.visibility_delay_s:g} s, and files take {late_s:.1f} s",
            f'Set visibility_delay = "{2 * late_s:.0f}s" under [paths].',
            where=where,
        )
    else:
        yield passed("visibility", f"within visibility_delay ({site.paths.visibility_delay_s:g} s)", where=where)


def _atomic_findings(sight: Sight, where: str) -> Iterator[Finding]:
    if not sight.raced:
        return
    both = sight.won_here & set(sight.won_there)
    made = sight.won_here | set(sight.won_there)
    if both or len(sight.won_there) != len(set(sight.won_there)):
        yield failed(
            "mkdir between nodes",
            f"{len(both)} of {RACES} folders were made by both sides: an attempt could run twice",
            "Use another file system for shared_root.",
            where=where,
        )
    elif len(made) == RACES:
        split = f"{len(sight.won_here)} here, {len(set(sight.won_there))} there"
        yield passed("mkdir between nodes", f"{RACES} folders, each made by one side only ({split})", where=where)
    else:
        yield caution("mkdir between nodes", f"only {len(made)} of {RACES} were made", "Look again.", where=where)
    torn = sight.number("torn_reads")
    if torn:
        yield caution(
            "rename between nodes",
            f"{torn:.0f} of {RACES} reads of a file that was being replaced failed or were cut",
            "Nothing has to be done where it is few: readers look again. Many: use another file system.",
            where=where,
        )
    elif torn is not None:
        yield passed("rename between nodes", f"{RACES} reads of a file that was being replaced were whole", where=where)


def _disk_findings(site: Site, sight: Sight, where: str) -> Iterator[Finding]:
    if site.paths.node_scratch:
        free_mb = sight.number("scratch_free_mb")
        if free_mb is None:
            yield failed("scratch", f"{site.paths.node_scratch} can't be used", "Correct node_scratch.", where=where)
        elif free_mb < FREE_MB:
            yield caution("scratch", f"{free_mb:.0f} MiB left", "Compiled kernels may not fit.", where=where)
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
            f"the job may use {cores:.0f} cores and asked for {gpu.cpus}: nothing keeps jobs on their own",
            "Ask the admins for TaskPlugin=task/affinity,task/cgroup; timings are disturbed without it.",
            where=where,
        )
    elif cores:
        yield passed("cores", f"{cores:.0f}, its own", where=where)


def _group_findings(sight: Sight, where: str) -> Iterator[Finding]:
    limits = [float(text) for text in sight.facts.get("memory_limit_mb", ()) if text.isdigit()]
    asked = sight.number("memory_asked_mb")
    if asked is None:
        return
    if limits and min(limits) <= 1.25 * asked:
        yield passed("memory on the node", f"a control group keeps the job to {min(limits):.0f} MiB", where=where)
    else:
        yield caution(
            "memory on the node",
            f"no control group keeps this job to the {asked:.0f} MiB it asked for; Slurm can look at most",
            "Ask the admins for ConstrainRAMSpace=yes; until then the judge's own look after each call is what counts.",
            where=where,
        )


def _achieved_findings(site: Site, sight: Sight, boards: Mapping[str, int], where: str) -> Iterator[Finding]:
    """What a whole attempt came to: the isolation that its judge found, the image that it ran in, its scratch."""
    report = sight.report
    if report is None:
        if sight.unreported:
            remedy = "Until an attempt gets through here every run fails as this one did."
            yield failed("rehearsal", f"a whole attempt gave no report: {sight.unreported}", remedy, where=where)
        return
    if report.verdict != "passed":
        remedy = "Look at the reason; any run here would fail like this."
        yield failed("rehearsal", f"a right answer got {report.verdict}: {report.reason}", remedy, where=where)
        return
    took_s = (report.ended_at_ns - report.started_at_ns) / 1e9
    yield passed("rehearsal", f"a whole attempt was judged in {took_s:.1f} s", where=where)
    yield _level_finding(site, report, boards, where)
    digest, pinned = str(report.host.get("image_digest", "")), report.host.get("image_pinned")
    if digest:
        seen = {"file": "over its bytes", "tree": "over its files", "record": "as its lock says"}
        how = seen.get(str(report.host.get("image_seen")), "")
        text = f"{digest[:19]}… {how}, {'as pinned' if pinned else 'pinned nowhere'}"
        yield passed("image as it ran", text, where=where)
    for note in report.isolation.notes:
        if note.startswith("all that a runner may write: ") and "memory" not in note:
            remedy = "A util-linux of 2.37 or newer and user namespaces on the node let it be memory of a fixed size."
            yield caution("a runner's scratch", note.partition(": ")[2], remedy, where=where)
        elif note.startswith("all that a runner may write: "):
            yield passed("a runner's scratch", note.partition(": ")[2], where=where)


def _level_finding(site: Site, report: Report, boards: Mapping[str, int], where: str) -> Finding:
    level, means = report.isolation.level, report.isolation.means
    text = f"level {level} ({means}) was achieved"
    lacks = "; ".join(note for note in report.isolation.notes if not note.startswith("all that a runner"))
    if level < site.ranked_min_isolation:
        missing = f"Missing: {lacks}. " if lacks else ""
        return failed(
            "isolation achieved",
            f"{text}, and the site's policy wants {site.ranked_min_isolation} for a run to rank: none would",
            f"{missing}Give the nodes what is missing, or lower ranked_min_isolation if that is meant.",
            where=where,
        )
    short = sorted(name for name, wanted in boards.items() if wanted > level)
    if short:
        return caution(
            "isolation achieved",
            f"{text}, and {', '.join(short)} want{'' if len(short) > 1 else 's'} more for a run to rank",
            "Choose another GPU type for them, or a lower level (kbslurm board edit --min-isolation).",
            where=where,
        )
    return passed("isolation achieved", f"{text}; {site.ranked_min_isolation} is what ranks here", where=where)


def _gpu_node_findings(gpu: GpuType, sight: Sight, where: str) -> Iterator[Finding]:
    if gpu.vendor == "none":
        return
    opened, there = sight.number("devices_opened") or 0, sight.number("devices_there") or 0
    if not there:
        yield failed(
            "GPU",
            "there is no device of a GPU on that node",
            "Does the request ask for one? See gres.conf.",
            where=where,
        )
        return
    if opened > 1 and not gpu.exclusive:
        yield caution(
            "devices",
            f"the job can open {opened:.0f} GPUs of {there:.0f} and asked for one",
            "Ask the admins for ConstrainDevices=yes, or set exclusive = true: others' GPUs can be disturbed.",
            where=where,
        )
    else:
        yield passed("devices", f"{opened:.0f} of {there:.0f} GPUs can be opened", where=where)
    for line in sight.facts.get("gpu", ()):
        yield from _one_gpu(gpu, [part.strip() for part in line.split("|")], where)
    if sight.fact("profiling") == "1":
        yield caution("profiling", "is for administrators only", "Boards that profile can't use it here.", where=where)


def _one_gpu(gpu: GpuType, told: Sequence[str], where: str) -> Iterator[Finding]:
    if len(told) != 7:
        return
    name, driver, mig, persistence, clock, most, throttle = told
    if mig == "Enabled" and gpu.whole:
        yield failed("MIG", f"{name} is cut into parts", "Set whole = false, or ask for whole ones.", where=where)
    with suppress(ValueError):
        if int(throttle, 16) & ~IDLE_THROTTLE:
            yield caution(
                "GPU's clock", f"{name} is slowed down now ({throttle})", "Power cap, heat or set clocks?", where=where
            )
    if persistence == "Disabled":
        yield caution(
            "GPU", "persistence mode is off: first starts are slow", "Ask for nvidia-persistenced.", where=where
        )
    yield passed("GPU", f"{name}, driver {driver}, {clock} of {most} MHz", where=where)


def _container_findings(site: Site, gpu: GpuType, sight: Sight, where: str) -> Iterator[Finding]:
    program = sight.fact("runtime")
    if program in (None, "none", ""):
        yield failed(
            "container program",
            f"there is no {site.container.executable} on the node",
            "Add its module to modules, or its path as program under [container].",
            where=where,
        )
        return
    mode = "setuid" if sight.fact("setuid") == "1" else "through user namespaces"
    yield passed("container program", f"{program}, {mode}", where=where)
    yield from _namespace_findings(site, sight, where)
    image = sight.fact("image")
    if image in (None, "none"):
        remedy = f"kbslurm image build or pull makes it at {site.image_of(gpu)}."
        yield failed("image on the node", f"{site.image_of(gpu)} isn't there", remedy, where=where)
        return
    found = sight.fact("image_digest")
    if found is not None and found != gpu.image_digest:
        yield failed(
            "image on the node",
            f"is {found}, and the site's file pins {gpu.image_digest}",
            "Somebody replaced it, or it is damaged: build or pull it again.",
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
        yield passed("user namespaces", "aren't allowed; the container program doesn't need them", where=where)
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
            "aren't allowed, and the site's file counts on them",
            'Set network = "shared" under [container] and untrusted = false; or ask the admins.',
            where=where,
        )


def _start_findings(image: str, sight: Sight, where: str) -> Iterator[Finding]:
    if (why := sight.fact("start_failed")) is not None:
        yield failed("container", f"doesn't start: {why or 'no reason given'}", "Is the image damaged?", where=where)
        return
    mounted = image.startswith("file") and sight.fact("setuid") != "1"
    if mounted and (sight.fact("squashfuse") != "yes" or sight.fact("fuse") != "yes"):
        lacks = "squashfuse isn't there" if sight.fact("squashfuse") != "yes" else "/dev/fuse can't be opened"
        yield caution(
            "squashfuse",
            f"{lacks}: the image is unpacked for every container",
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
        why = sight.fact("inside_failed") or "it says nothing"
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
            "none can be seen from inside",
            "Is vendor right? --nv needs the driver's libraries on the node, --rocm /dev/kfd.",
            where=where,
        )
    elif seen > 1:
        yield caution(
            "GPU in the container",
            f"{seen:.0f} can be seen from inside, one was asked for",
            "Ask the admins for ConstrainDevices=yes, or set exclusive = true.",
            where=where,
        )
    else:
        yield passed("GPU in the container", "one can be seen from inside", where=where)


def _caged_findings(site: Site, sight: Sight, where: str) -> Iterator[Finding]:
    leaks = []
    if site.container.network == "none" and sight.fact("inside_network") == "yes":
        leaks.append("the internet")
    if sight.fact("inside_munge") == "yes":
        leaks.append("munge's socket")
    if sight.fact("inside_root_writable") == "yes":
        leaks.append("the image, which it can write")
    if leaks:
        yield failed(
            "isolation",
            f"a submission reaches {', '.join(leaks)}",
            "Look at the container program's configuration (bind path, mount hostfs) and at [container] options.",
            where=where,
        )
    else:
        yield passed("isolation", "no network, no munge, a read-only image, its own processes only", where=where)
