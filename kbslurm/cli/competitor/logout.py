"""`kbslurm logout`: revoke this device's token."""

from __future__ import annotations

from kbslurm.cli.arguments import Json, ServiceAddress
from kbslurm.cli.competitor import kept_tokens
from kbslurm.cli.competitor.connect import reached, service_named
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, BackendTrouble, NotAccepting, NotFound, Unauthenticated


def logout(where: ServiceAddress = None, as_json: Json = False) -> int:
    """Sign out of a service: revoke this device's token and remove it."""
    found = service_named(where)
    named, token, ended, code, why = found.url, found.token, False, EXIT_OK, ""
    if token is not None:
        try:
            with reached(named, token) as client:
                client.logout()
            ended = True
        except Unauthenticated:
            ended = True  # it had been revoked or had expired already
        except (BackendTrouble, NotAccepting, NotFound) as error:
            why, code = error.message, error.exit_code
    kept = token is not None and kept_tokens.forget(named, token)
    if as_json:
        printing.as_json({"url": named, "ended": ended, "forgotten": kept})
    elif token is None:
        printing.say(f"there was no saved token for {named}")
    elif ended:
        printing.say(f"signed out of {named}")
    else:
        printing.say(f"the token was removed here, but {named} couldn't revoke it ({why})")
        printing.say("it stays valid until a host revokes it: kbslurm user token revoke YOUR-NAME")
    return code
