"""`kbslurm user token …`: the secrets that identify people to the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json, PersonName
from kbslurm.cli.host.connect import host, person
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid


def issue(
    name: PersonName,
    device: Annotated[str, typer.Option(help="A label, such as where it will be used.")] = "",
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="Expires after this many days.")] = None,
    service: Annotated[
        bool,
        typer.Option(
            "--service",
            help="For the person's programs: what they submit never ranks and waits behind everyone's runs.",
        ),
    ] = False,
    gpu_seconds: Annotated[
        float | None,
        typer.Option(
            "--gpu-seconds", min=0, max=1_000_000_000, help="With --service: its quota per day (default: no limit)."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Issue a new token for a person. It is shown only once; put it into ~/.popcorn.yaml as `cli_id: TOKEN`."""
    if gpu_seconds is not None and not service:
        raise Invalid("--gpu-seconds is the quota of a service token", hint="Add --service.")
    with host() as hosts:
        told = hosts.issue_token(person(name), device=device, days=days, service=service, gpu_s_per_day=gpu_seconds)
    if as_json:
        printing.as_json(told)
    else:
        printing.say(told["token"])
    return EXIT_OK


def list_(name: PersonName, as_json: Json = False) -> int:
    """List a person's tokens by device; the tokens themselves aren't stored."""
    with host() as hosts:
        found = hosts.tokens(person(name))
    if as_json:
        printing.as_json(list(found))
        return EXIT_OK
    rows = [
        (
            str(one["id"]),
            printing.escape(one["device"]),
            one["kind"],
            "revoked" if one["revoked_at"] else "over" if _is_over(one["expires_at"]) else "good",
            printing.when_told(one["created_at"]),
            printing.when_told(one["used_at"]),
            printing.when_told(one["expires_at"]),
        )
        for one in found
    ]
    printing.table(("token", "device", "kind", "state", "issued", "used", "ends"), rows)
    return EXIT_OK


def revoke(
    name: PersonName,
    token: Annotated[int | None, typer.Argument(help="The token's number, as `list` shows it (default: all).")] = None,
    as_json: Json = False,
) -> int:
    """Revoke one or all of a person's tokens."""
    with host() as hosts:
        told = hosts.revoke_tokens(person(name), token)
    if as_json:
        printing.as_json(told)
    else:
        count = len(told["revoked"])
        printing.say(f"{count} token{'s' if count != 1 else ''} of {told['person']} revoked")
    return EXIT_OK


def _is_over(expires_at: str | None) -> bool:
    return expires_at is not None and datetime.fromisoformat(expires_at) <= datetime.now(UTC)
