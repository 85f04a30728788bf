"""The script of the job that checks a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

import jinja2

from kbslurm.backends.slurm.doctor import rehearsal
from kbslurm.backends.slurm.doctor.shared_root import RACES
from kbslurm.domain.apptainer import ApptainerCommand, Bind
from kbslurm.domain.site import GpuType, Site
from kbslurm.errors import Misconfigured
from kbslurm.flow.script import ShellText, node_text, shell_quoted

TURN_LENGTH = 4096
PROBE_MINUTES = 10


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
        raise Misconfigured(error.message, file=Path(file), line=line, fix="Fix the template.") from None


def _block(environment: jinja2.Environment, template: str, name: str, values: Mapping[str, object]) -> str:
    """One block of a template as overridden by its nearest child, including `super()`."""
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
