"""What the settings of a site's Slurm mean for us, from `scontrol show config`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kbslurm.backends.slurm.doctor.survey import has_accounting
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.site import Site

OFF_S = 2.0


def setting_findings(site: Site, settings: Mapping[str, str], *, now: float, slack_s: float = 0.0) -> list[Finding]:
    """What Slurm's own settings mean for us. They were read at `now`, give or take `slack_s`."""
    return [
        accounting_finding(site, settings),
        _job_age_finding(site, settings),
        _rate_finding(site, settings),
        _delay_finding(settings),
        _device_finding(settings),
        _memory_finding(settings),
        *_clock_findings(settings, now, slack_s),
        *_requeue_findings(settings),
        *_warm_findings(site, settings),
    ]


def accounting_finding(site: Site, settings: Mapping[str, str]) -> Finding:
    """Whether Slurm keeps its jobs' history, and the site's file says so."""
    there = has_accounting(settings)
    if site.slurm.accounting and not there:
        return failed(
            "accounting", "the site's file expects it, but Slurm has none", "Set accounting = false under [slurm]."
        )
    if not there:
        return caution(
            "accounting",
            "is off: only the job's own files and squeue show what ended",
            "No action needed; only a job that vanishes without files takes longer to resolve.",
        )
    if not site.slurm.accounting:
        return caution(
            "accounting", "is available, but the site's file says not to use it", "Set accounting = true under [slurm]."
        )
    return passed("accounting", settings["AccountingStorageType"])


def _job_age_finding(site: Site, settings: Mapping[str, str]) -> Finding:
    age_s = _seconds(settings.get("MinJobAge", ""))
    least_s = 3 * site.poll.min_interval_s
    if age_s is None:
        return caution("MinJobAge", "isn't shown", "Ask the admins; 300 s is usual.")
    if age_s >= least_s:
        return passed("MinJobAge", f"squeue shows a finished job for {age_s:.0f} s")
    text = f"squeue drops a finished job after {age_s:.0f} s, but is polled every {site.poll.min_interval_s:g} s"
    remedy = "Ask the admins for a longer MinJobAge, or lower min_interval under [poll] if they allow it."
    if has_accounting(settings) and site.slurm.accounting:
        return caution("MinJobAge", f"{text}; sacct is used instead", remedy)
    return caution("MinJobAge", f"{text}, and there is no accounting: only the job's own files show its end", remedy)


def _rate_finding(site: Site, settings: Mapping[str, str]) -> Finding:
    told = settings.get("SlurmctldParameters", "")
    if "rl_enable" not in told:
        return passed("rate limits", f"none; we make at most {site.poll.calls_per_minute:g} calls a minute")
    refill = re.search(r"rl_refill_rate=(\d+)", told)
    period = re.search(r"rl_refill_period=(\d+)", told)
    per_minute = 60 * int(refill[1] if refill else 2) / int(period[1] if period else 1)
    text = f"Slurm allows {per_minute:g} calls a minute per user; we make at most {site.poll.calls_per_minute:g}"
    if site.poll.calls_per_minute <= per_minute:
        return passed("rate limits", text)
    return caution(
        "rate limits", text, f"Set calls_per_minute = {per_minute:g} under [poll]: calls over the limit only wait."
    )


def _delay_finding(settings: Mapping[str, str]) -> Finding:
    found = re.search(r"batch_sched_delay=(\d+)", settings.get("SchedulerParameters", ""))
    delay_s = int(found[1]) if found else 3
    if delay_s <= 3:
        return passed("start delay", f"batch_sched_delay is {delay_s} s")
    return caution(
        "start delay", f"a job waits {delay_s} s even if GPUs are free", "Ask for a lower batch_sched_delay."
    )


def _device_finding(settings: Mapping[str, str]) -> Finding:
    constrained = settings.get("ConstrainDevices", "").lower()
    if constrained == "yes" and "task/cgroup" in settings.get("TaskPlugin", "task/cgroup"):
        return passed("device isolation", "Slurm gives a job access only to its own GPUs (ConstrainDevices)")
    return caution(
        "device isolation",
        "Slurm doesn't restrict a job to its own GPUs (ConstrainDevices is off)",
        "Ask the admins for ConstrainDevices=yes in cgroup.conf with TaskPlugin=task/cgroup, or use exclusive = true.",
    )


def _memory_finding(settings: Mapping[str, str]) -> Finding:
    """How Slurm limits jobs to their requested memory: by a control group, by polling, or not at all."""
    remedy = "Ask the admins for ConstrainRAMSpace=yes in cgroup.conf with TaskPlugin=task/cgroup."
    grouped = settings.get("ConstrainRAMSpace", "").lower() == "yes" and "task/cgroup" in settings.get("TaskPlugin", "")
    looked = "OverMemoryKill" in settings.get("JobAcctGatherParams", "")
    if not grouped and not looked:
        text = "nothing limits a job's memory: one that uses too much can kill its neighbours before the judge notices"
        return caution("memory limit", text, f"{remedy} Or set exclusive = true.")
    if "MEMORY" not in settings.get("SelectTypeParameters", "").upper():
        text = "memory isn't allocated (SelectTypeParameters): a node's jobs can be promised more than it has"
        return caution("memory limit", text, "Ask the admins for CR_Core_Memory, or set exclusive = true.")
    if grouped:
        return passed("memory limit", "enforced by a control group per job (ConstrainRAMSpace)")
    every = re.search(r"task=(\d+)|^(\d+)", settings.get("JobAcctGatherFrequency", ""))
    seconds = (every[1] or every[2]) if every else "30"
    return passed("memory limit", f"Slurm checks every {seconds} s and kills a job that exceeds it (OverMemoryKill)")


def _clock_findings(settings: Mapping[str, str], now: float, slack_s: float) -> Iterator[Finding]:
    told = settings.get("answered at")
    if told is None:
        return
    off_s = now - float(told)
    if abs(off_s) > OFF_S + slack_s:
        yield caution(
            "controller's clock",
            f"differs from ours by about {abs(off_s):.0f} s",
            "Synchronise both with the same time server: waiting times are off by that much.",
        )
    else:
        yield passed("controller's clock", f"agrees with ours within {max(1.0, abs(off_s)):.0f} s")


def _requeue_findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    if "ForceRequeueOnFail" in settings.get("PrologFlags", ""):
        yield caution(
            "requeue",
            "Slurm requeues jobs whose prolog fails, whatever we request (ForceRequeueOnFail)",
            "No action needed: a requeued job finds its attempt claimed; it costs two minutes.",
        )


def _warm_findings(site: Site, settings: Mapping[str, str]) -> Iterator[Finding]:
    """What matters only where the site's file allows warm workers."""
    kinds = ", ".join(name for name, gpu in site.gpus.items() if gpu.warm is not None and gpu.warm.max)
    if not kinds:
        return
    epilog = next(
        (told for key in ("Epilog", "Epilog[0]") if (told := settings.get(key, "")) not in ("", "(null)")), ""
    )
    if epilog:
        yield caution(
            "job epilog",
            f"{epilog} runs when a job ends, so not between two runs in a warm worker ({kinds}): what it cleans up"
            " stays until the worker ends",
            "Ask the admins whether it cleans GPUs (ends processes, resets clocks or the device). If it does, ask for"
            " the same in TaskEpilog, which runs after each step, or remove [gpus.X.warm].",
        )
    else:
        yield passed("job epilog", "there is none, so nothing is left out between two runs in a warm worker")
    if "enable_stepmgr" in settings.get("SlurmctldParameters", "").split(","):
        text = f"their node creates them (enable_stepmgr): a run in a warm worker ({kinds}) asks the controller nothing"
        yield passed("steps", text)
    else:
        yield passed(
            "steps",
            f"the controller creates them: each run in a warm worker ({kinds}) is one request to it, from the node."
            " From Slurm 24.05 on, enable_stepmgr in SlurmctldParameters leaves that to the node",
        )
    if "jobs" in settings.get("PrivateData", "").lower():
        yield caution(
            "other people's jobs",
            "are hidden from us (PrivateData), and unknown means that others wait: each warm worker is given back after"
            " about five minutes",
            "No action needed. A coordinator's or operator's account would see them.",
        )
    else:
        yield passed("other people's jobs", "can be seen, so a warm worker is given back when one of them waits")


def _seconds(text: str) -> float | None:
    found = re.match(r"(\d+)", text)
    return float(found[1]) if found else None
