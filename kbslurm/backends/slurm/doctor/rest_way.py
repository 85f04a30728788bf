"""What `kbslurm doctor --site` can see through slurmrestd, which shows less than Slurm's commands do."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from kbslurm.backends.slurm.doctor.checkup import Checkup
from kbslurm.backends.slurm.doctor.gpu_types import gpu_findings, script_in
from kbslurm.backends.slurm.doctor.partitions import GRES_FORMAT, read_partitions
from kbslurm.backends.slurm.doctor.scheduler_settings import accounting_finding
from kbslurm.backends.slurm.doctor.survey import read_settings
from kbslurm.backends.slurm.rest.commands import RestCommands
from kbslurm.backends.slurm.rest.job_fields import Untold, fields_of
from kbslurm.backends.slurm.rest.token import NoToken
from kbslurm.domain.finding import Finding, caution, failed, passed, unseen
from kbslurm.domain.site import GpuType
from kbslurm.errors import BackendTrouble, KbslurmError

SOON_S = 86_400.0
UNACCOUNTED = (
    "A slurmrestd at a cluster without accounting ends at once unless it is started with -s slurmctld, which leaves"
    " accounting out."
)
UNSHOWN = "Slurm's settings and limits, and whether it would accept a job"


def rest_findings(checkup: Checkup, commands: RestCommands) -> list[Finding]:
    """The way there, the token, the partitions, and whether each request can be put to slurmrestd."""
    site = checkup.site
    answers = _answered(commands, "slurmrestd", "sinfo", "-V")
    if isinstance(answers, Finding):
        return [answers if site.slurm.accounting else replace(answers, remedy=f"{answers.remedy} {UNACCOUNTED}")]
    connection = commands.connection
    settings = _answered(commands, "accounting", "scontrol", "show", "config")
    found = [
        passed("slurmrestd", f"{site.submit.url} speaks {connection.version}, of Slurm {connection.release}"),
        token_finding(checkup, commands),
        settings if isinstance(settings, Finding) else accounting_finding(site, read_settings(settings)),
        unseen("settings", UNSHOWN, 'Run kbslurm doctor --site once on a login node, with via = "local".'),
    ]
    sinfo = _answered(commands, "sinfo", "sinfo", "-h", "-a", "-o", GRES_FORMAT)
    told = _answered(commands, "partitions", "scontrol", "-o", "show", "partition")
    found += [one for one in (sinfo, told) if isinstance(one, Finding)]
    if site.slurm.accounting:
        sacct = _answered(commands, "sacct", "sacct", "-X", "-n", "-P", "-S", "now-1minutes", "-o", "JobIDRaw")
        found.append(sacct if isinstance(sacct, Finding) else passed("sacct", "slurmdbd answers"))
    partitions = read_partitions(sinfo, told) if isinstance(sinfo, str) and isinstance(told, str) else ()
    for gpu in site.gpus.values():
        found += [*gpu_findings(gpu, partitions), request_finding(checkup, gpu)]
    return found


def token_finding(checkup: Checkup, commands: RestCommands) -> Finding:
    """Whose token it is, and for how long."""
    try:
        token = commands.tokens.current()
    except NoToken as why:
        return failed("token", str(why), "Make one with: scontrol token lifespan=86400")
    acts = f", acting for {checkup.site.submit.user}" if checkup.site.submit.user not in ("", token.user) else ""
    whose = f"of {token.user or 'an account that it keeps to itself'}{acts}, from {commands.tokens.named}"
    if token.until is None:
        return passed("token", f"{whose}, without an end")
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(token.until))
    if checkup.site.submit.token_command or token.until - checkup.clock() > SOON_S:
        return passed("token", f"{whose}, until {until}")
    return caution("token", f"{whose}, ends at {until}", "Have it renewed in time, or set token_command in [submit].")


def request_finding(checkup: Checkup, gpu: GpuType) -> Finding:
    """Whether slurmrestd can be told all that the job script asks for. It can't be asked whether Slurm would accept."""
    folder = Path(checkup.site.paths.shared_root) / "doctor"
    try:
        fields_of(script_in(checkup, gpu, folder))
    except Untold as why:
        return failed("request", str(why), "Correct the options of this GPU type.", where=gpu.name)
    except KbslurmError as error:
        return failed("request", error.message, error.hint or "Correct the site's file.", where=gpu.name)
    return passed("request", f"slurmrestd can be told all of it ({gpu.request or 'no request'})", where=gpu.name)


def _answered(commands: RestCommands, name: str, tool: str, *arguments: str) -> str | Finding:
    try:
        answer = commands.run(tool, arguments)
    except BackendTrouble as error:
        return failed(name, error.message, "Check that slurmrestd and the controller are up, or ask the admins.")
    if answer.status:
        why = commands.lapse_in(answer.status, answer.err) or answer.complaint
        return failed(name, why, "Correct [submit] in the site's file, or ask the admins.")
    return answer.out
