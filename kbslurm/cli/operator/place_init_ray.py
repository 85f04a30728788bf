"""`kbslurm place init ray`: describe a Ray cluster, one that runs or one that Ray's own launcher is to start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.chosen import chosen
from kbslurm.cli.context import lenient_configuration
from kbslurm.cli.operator.place_init import Stdout, Yes, asked
from kbslurm.cli.output import printing
from kbslurm.config.sections.ray_pool import Provider
from kbslurm.errors import EXIT_OK, BackendTrouble, Invalid

if TYPE_CHECKING:
    from kbslurm.backends.ray.starter import Offered
    from kbslurm.config.settings import Config

PROBE_S = 10.0
FORWARDED = "http://127.0.0.1:8265"


def ray(
    name: Annotated[str, typer.Option("--name", help="The place's name.")] = "",
    url: Annotated[str, typer.Option("--url", help="The address of Ray's Jobs API: its dashboard.")] = "",
    service_url: Annotated[
        str, typer.Option("--service-url", help="The address of this service as the nodes reach it.")
    ] = "",
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="Only these GPU types.")] = None,
    provider: Annotated[
        str, typer.Option("--provider", help="Describe a cluster to be started there: aws, gcp, azure or local.")
    ] = "",
    region: Annotated[str, typer.Option("--region", help="The provider's region.")] = "",
    machine: Annotated[str, typer.Option("--machine", help="The workers' machine type.")] = "",
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many workers of each kind.")] = 4,
    preemptible: Annotated[
        bool, typer.Option("--preemptible", help="Workers that the provider may take back.")
    ] = False,
    yes: Yes = False,
    stdout: Stdout = False,
    as_json: Json = False,
) -> int:
    """Make a Ray cluster a place, in kbslurm.toml. With its token set, a running one is asked for its GPUs."""
    from kbslurm.backends.ray.starter import Offered, Wishes, toml_of

    config = lenient_configuration()
    name = name or asked("--name", "The place's name", "ray", yes=yes)
    if name in config.ray:
        raise Invalid(f"ray.{name} is already set in {config.file}", hint="Change it there, or use another name.")
    kind = _provider(provider)
    url = url or asked("--url", "The address of Ray's dashboard", FORWARDED if kind else "", yes=yes)
    if not (service_url or config.server.public_url):
        service_url = asked("--service-url", "The address of this service for the nodes", "", yes=yes)
    found, seen = ([], []) if kind else _offered(config, name, url)
    types = [next((one for one in found if one.name == wanted), Offered(name=wanted)) for wanted in gpu or ()] or found
    if not types:
        for line in seen:
            typer.echo(line, err=True)
        text = asked("--gpu", "GPU types, separated by commas", "H100" if kind else "", yes=yes)
        types = [Offered(name=word.strip()) for word in text.split(",") if word.strip()]
    wishes = Wishes(
        name=name, url=url, service_url=service_url or config.server.public_url, gpus=types, provider=kind,
        region=region, machine=machine, most=most, preemptible=preemptible,
    )  # fmt: skip
    return _finish(config, name, toml_of(wishes), pool=kind is not None, stdout=stdout, as_json=as_json, seen=seen)


def _provider(text: str) -> Provider | None:
    known: tuple[Provider, ...] = get_args(Provider)
    if text and text not in known:
        raise Invalid(f"{text!r} isn't a provider", hint=f"Use one of {', '.join(known)}.")
    return next((one for one in known if one == text), None)


def _offered(config: Config, name: str, url: str) -> tuple[list[Offered], list[str]]:
    """The GPU types of the cluster that runs there, and what was seen, in words."""
    from kbslurm.backends.ray.api import Api
    from kbslurm.backends.ray.pool_check import NODES, nodes_in
    from kbslurm.backends.ray.starter import offered_by
    from kbslurm.config.sections.checks import web_address
    from kbslurm.domain.secret_names import of_ray

    variable = of_ray(name)[0]
    api = Api(name, url=web_address(url), token=config.secret(variable) or "", timeout_s=PROBE_S)
    try:
        nodes = nodes_in(api.get(NODES).data)
    except BackendTrouble as error:
        return [], [f"{url}: {error.message}; its token is read from {variable}"]
    finally:
        api.close()
    found = offered_by(nodes or [])
    return found, [f"{one.there} × {one.name}" for one in found] or [f"no worker with a GPU is up at {url}"]


def _finish(
    config: Config, name: str, tables: str, *, pool: bool, stdout: bool, as_json: bool, seen: Sequence[str]
) -> int:
    """Add the tables at the end of the configuration in use, or of a kbslurm.toml here; or only print them."""
    from kbslurm.config import toml_addition
    from kbslurm.config.settings import FILE_NAME
    from kbslurm.domain.secret_names import of_ray

    file = config.file or chosen.config or Path.cwd() / FILE_NAME
    if not stdout:
        try:
            before = file.read_text(encoding="utf-8") if file.exists() else ""
        except (OSError, UnicodeDecodeError):
            raise Invalid(f"{file} can't be read", hint="Check its permissions.") from None
        gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
        toml_addition.written(file, before + gap + tables)
    missing = [one for one in of_ray(name) if one not in config.secrets]
    then = [f"set {' and '.join(missing)} for the service"] if missing else []
    out = f"{name}.yaml"
    then += [f"kbslurm ray pool {name} --out {out}, and ray up {out}"] if pool else []
    then += [f"kbslurm place check {name}"]
    if as_json:
        told = {"file": None if stdout else str(file), "toml": tables, "found": list(seen), "next": then}
        printing.as_json(told)
    elif stdout:
        print(tables, end="")
    else:
        for line in seen:
            printing.say(f"seen: {line}")
        printing.say(f"{printing.path(file)} has now:")
        printing.say(tables.rstrip("\n"))
        for step in ["review the lines with a ?", *then, "kbslurm place reload, if the service runs"]:
            printing.say(f"then: {step}")
    return EXIT_OK
