"""`kbslurm modal …`: deploy the app that overflow runs go to, and check it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.domain.finding import Finding
from kbslurm.errors import EXIT_OK, KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.settings import Config


def check(as_json: Json = False) -> int:
    """Check the token, app, harness and functions: PASS, CAUTION or FAIL, each with its remedy. Exit code 1 on a
    FAIL."""
    return print_findings(list(modal_findings(configuration())), as_json, summed=True)


def modal_findings(config: Config) -> Iterator[Finding]:
    """Whether a run would work at Modal."""
    from kbslurm import wiring
    from kbslurm.backends.modal import deploy

    facts, connection = wiring.modal_facts(config), wiring.modal_connection(config)
    try:
        yield from deploy.findings(connection, facts)
    finally:
        connection.close()


def accepted(config: Config) -> list[str]:
    """Whether Modal accepts the token, if there is one and Modal's client is installed."""
    from kbslurm import wiring
    from kbslurm.backends.modal.connection import CallFailed, Connection

    if not {"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"} <= set(config.secrets):
        return []
    try:
        connection = Connection(*wiring.modal_token(config), api_url=config.modal.api_url)
        try:
            connection.hello()
        finally:
            connection.close()
    except KbslurmError as error:
        printing.note(f"the token can't be checked: {error.message}")
        return []
    except CallFailed as error:
        printing.note(f"Modal doesn't accept the token: {error.said}")
        return []
    return ["the token is accepted"]


def deploy_(
    to: Annotated[Path | None, typer.Option("--to", help="Only write the folder that would be deployed.")] = None,
    as_json: Json = False,
) -> int:
    """Deploy the app that [modal] describes, with this installation's harness. Repeat this after every update."""
    from kbslurm import wiring
    from kbslurm.backends.modal import deploy

    config = configuration()
    facts = wiring.modal_facts(config)
    file = wiring.modal_folder(config, facts, to)
    if to is None:
        deploy.deploy(
            file,
            token=wiring.modal_token(config),
            api_url=config.modal.api_url,
            environment=config.modal.environment,
        )
    if as_json:
        digest = facts["harness_digest"]
        printing.as_json(
            {"app": facts["app"], "file": str(file), "deployed": to is None, "harness_digest": digest}
            | {"functions": sorted(facts["functions"])}
        )
    elif to is None:
        many = "1 function" if len(facts["functions"]) == 1 else f"{len(facts['functions'])} functions"
        printing.say(f"{facts['app']} is deployed, {many}; check it with: kbslurm modal check")
    else:
        printing.say(f"{printing.path(file)} written; deploy it with: modal deploy {printing.path(file)}")
    return EXIT_OK
