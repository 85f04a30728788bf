"""What `kbslurm doctor --site` can see without a job: Slurm's answers and the shared root."""

from __future__ import annotations

import re
import shlex

from kbslurm.backends.slurm import ssh_login
from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.doctor.checkup import Checkup
from kbslurm.backends.slurm.doctor.gpu_types import gpu_findings, request_finding
from kbslurm.backends.slurm.doctor.growing import COUNT_FORMAT, growth_finding
from kbslurm.backends.slurm.doctor.limits import limit_findings
from kbslurm.backends.slurm.doctor.partitions import GRES_FORMAT, read_partitions
from kbslurm.backends.slurm.doctor.rest_way import rest_findings
from kbslurm.backends.slurm.doctor.scheduler_settings import setting_findings
from kbslurm.backends.slurm.doctor.shared_root import root_findings
from kbslurm.backends.slurm.doctor.survey import has_accounting, read_settings, read_version
from kbslurm.backends.slurm.fleet import PyslurmFleet, fleet_reader
from kbslurm.backends.slurm.rest.commands import RestCommands
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.site import Site
from kbslurm.errors import BackendTrouble

OLDEST = (20, 11)


def login_findings(checkup: Checkup) -> list[Finding]:
    """All that can be seen without a job: the scheduler's settings, each GPU type's request, the shared root."""
    site, commands = checkup.site, checkup.commands
    if isinstance(commands, RestCommands):
        return [*rest_findings(checkup, commands), *root_findings(site)]
    version = _asked(commands, "sinfo", "-V")
    if isinstance(version, Finding):
        return [version, *root_findings(site)]
    found = [version_finding(version), *reader_findings(site, commands)]
    began = checkup.clock()
    config = _asked(commands, "scontrol", "show", "config")
    if isinstance(config, Finding):
        return [*found, config, *root_findings(site)]
    settings = read_settings(config)
    took_s = checkup.clock() - began
    found += setting_findings(site, settings, now=began + took_s / 2, slack_s=took_s / 2)
    if site.slurm.accounting and has_accounting(settings):
        found.append(_sacct_finding(commands))
    sinfo = _asked(commands, "sinfo", "-h", "-a", "-o", GRES_FORMAT)
    told = _asked(commands, "scontrol", "-o", "show", "partition")
    for answer in (sinfo, told):
        if isinstance(answer, Finding):
            found.append(answer)
    if isinstance(told, str):
        counted = _asked(commands, "sinfo", "-h", "-a", "-o", COUNT_FORMAT) if settings.get("MaxNodeCount") else ""
        nodes = int(counted) if isinstance(counted, str) and counted.strip().isdigit() else None
        found.append(growth_finding(site, settings, nodes, told))
    partitions = read_partitions(sinfo, told) if isinstance(sinfo, str) and isinstance(told, str) else ()
    if site.slurm.accounting and has_accounting(settings):
        found += limit_findings(site, commands, told if isinstance(told, str) else "")
    for gpu in site.gpus.values():
        found += gpu_findings(gpu, partitions)
    roots = root_findings(site)
    found += roots
    if all(finding.grade != "FAIL" for finding in roots):
        found += [request_finding(checkup, gpu) for gpu in site.gpus.values()]
    return found


def _asked(commands: Commands, tool: str, *arguments: str) -> str | Finding:
    """What the command printed, or the finding that it doesn't answer."""
    try:
        answer = commands.run(tool, arguments)
    except BackendTrouble as error:
        return failed(
            tool, error.message, error.hint or "Check that this is a login node of that cluster; see bin_dir and conf."
        )
    far = commands.site.submit
    if far.by_hand and (lapse := ssh_login.lapse_in(far, answer.status, answer.err)):
        return failed(f"ssh to {far.host}", lapse.partition(";")[0], f"Log in with: {ssh_login.open_command(far)}")
    if far.via == "ssh" and answer.status == ssh_login.FAILED:
        words = ["ssh", *(("-i", far.identity) if far.identity else ()), *(("-l", far.user) if far.user else ())]
        hand = shlex.join([*words, "-p", str(far.port), far.host, "true"])
        return failed(f"ssh to {far.host}", answer.complaint, f"Fix [submit] until this works by hand: {hand}")
    if answer.status:
        return failed(tool, answer.complaint, "Check that the controller is up (scontrol ping), or ask the admins.")
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
        return caution("Slurm", f"{version} is older than the supported versions", "Use Slurm 20.11 or newer.")
    return passed("Slurm", version)


def reader_findings(site: Site, commands: Commands) -> list[Finding]:
    """Which reader `kbslurm status` has for the nodes, and why, where the site names a pyslurm."""
    if not site.slurm.pyslurm_python:
        return []
    reader = fleet_reader(site, commands)
    if isinstance(reader, PyslurmFleet):
        return [passed("pyslurm", f"reads the nodes ({site.slurm.pyslurm_python})")]
    return [
        caution(
            "pyslurm",
            f"isn't used: {reader.why}; Slurm's text commands are",
            "Correct pyslurm_python under [slurm], or leave it out: nothing is missing without it.",
        )
    ]


def _sacct_finding(commands: Commands) -> Finding:
    answer = _asked(commands, "sacct", "-X", "-n", "-P", "-S", "now-1minutes", "-o", "JobIDRaw")
    return answer if isinstance(answer, Finding) else passed("sacct", "answers")
