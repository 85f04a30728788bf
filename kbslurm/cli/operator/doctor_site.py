"""What `kbslurm doctor --site` checks: a cluster's login node, its images, and its nodes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.cli.context import configuration
from kbslurm.cli.lookup import site_named
from kbslurm.config import shared_folders
from kbslurm.domain.finding import Finding, caution, failed
from kbslurm.errors import KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.domain.site import Site
    from kbslurm.flow.script import Charged
    from kbslurm.store.views import Board


BUDGET_WAIT_S = 120.0


def site_findings(name: str, *, live: bool, wait_s: float) -> list[Finding]:
    """Check a cluster's login node, its images, and with `live` its nodes."""
    from kbslurm import wiring
    from kbslurm.backends.slurm.doctor import login_node, probe_job
    from kbslurm.backends.slurm.doctor.checkup import Checkup

    found = site_named(name)
    checkup = Checkup(
        site=found,
        commands=wiring.commands(configuration(), found, wait_s=BUDGET_WAIT_S),
        templates=shared_folders.path("sbatch_templates"),
        eval_dir=shared_folders.eval_dir(),
        boards=wanted_by_boards(configuration(), found) if live else {},
        wait_s=wait_s,
        charged=somebody_charged(configuration()) if any(gpu.charges_people for gpu in found.gpus.values()) else None,
    )
    findings = [*login_node.login_findings(checkup), *memory_findings(configuration(), found), *image_findings(found)]
    return [*findings, *(probe_job.live_findings(checkup) if live else probe_job.unlooked(found))]


def wanted_by_boards(config: Config, site: Site) -> dict[str, dict[str, int]]:
    """By GPU type of this site, the isolation that open boards require for a run to rank."""
    here = open_boards(config)
    return {gpu: {board.name: board.min_isolation for board in here if gpu in board.gpus} for gpu in site.gpus}


def open_boards(config: Config) -> list[Board]:
    """The boards that accept submissions. An unreachable database is reported by `kbslurm doctor` itself, not here."""
    from kbslurm import wiring
    from kbslurm.store import migrate

    if not config.database_url:
        return []
    try:
        if migrate.check(config.database_url) is not migrate.Schema.CURRENT:
            return []
        with wiring.opened_store(config, migrated=False) as store:
            return [board for board in store.boards.all() if board.closed_at is None]
    except KbslurmError:
        return []


def memory_findings(config: Config, site: Site) -> list[Finding]:
    """Whether a job gets the memory that its problem needs: the open boards' problems, and one with the usual limit."""
    from kbslurm.flow.script import more_memory, short_of_memory
    from kbslurm_eval.shared.wire import Limits

    findings, here = [], open_boards(config)
    for gpu in site.gpus:
        boards = [board for board in here if gpu in board.gpus]
        for board in boards:
            problem = board.problem
            if (short := short_of_memory(site, gpu, problem.memory_bytes, problem.world_size)) is not None:
                findings.append(failed("memory", f"board {board.name}: {short}", more_memory(gpu), where=gpu))
        usual = short_of_memory(site, gpu, Limits().memory_bytes)
        if usual is not None and not boards:
            findings.append(caution("memory", f"{usual}, with the usual limit", more_memory(gpu), where=gpu))
    return findings


def somebody_charged(config: Config) -> Charged | None:
    """A person whose cluster account can pay for a probe, where each person's own account pays."""
    from kbslurm import wiring
    from kbslurm.flow.script import Charged

    if not config.database_url:
        return None
    try:
        with wiring.opened_store(config, migrated=False) as store:
            paying = [one for one in store.people.all() if one.cluster_account and one.banned_at is None]
    except KbslurmError:
        return None
    return Charged(person=paying[0].name, account=paying[0].cluster_account) if paying else None


def image_findings(site: Site) -> list[Finding]:
    """Whether the images exist and match their pins. An image that only the nodes can see isn't reported as missing."""
    from kbslurm.images import apptainer, verifying

    if site.container.runtime == "none":
        remedy = "Install Apptainer: without it only staff's own submissions may run here."
        return [caution("containers", "none: nothing protects the service's own files from submissions", remedy)]
    maker: apptainer.Maker | None = apptainer.Maker(program=site.container.executable, timeout_s=apptainer.LOOK_S)
    if shutil.which(site.container.executable) is None:
        maker = None
    found: dict[tuple[Path, str], list[str]] = {}
    for gpu in site.gpus.values():
        found.setdefault((Path(site.image_of(gpu)), gpu.image_digest), []).append(gpu.name)
    findings = []
    for (path, pinned), names in found.items():
        where = ", ".join(names)
        if path.exists() or path.is_relative_to(site.paths.shared_root):
            findings += verifying.verify(path, maker, pinned=pinned, where=where)
        else:
            text = f"{path} isn't on this machine; only a job can see whether it is on the nodes"
            findings.append(caution("image", text, "Run kbslurm doctor --live to check.", where=where))
    return findings
