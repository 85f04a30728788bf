"""`kbslurm logout`: end the token of this device."""

from __future__ import annotations

from kbslurm.cli.arguments import Json, ServiceAddress
from kbslurm.cli.competitor import kept_tokens
from kbslurm.cli.competitor.connect import reached, service_address
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, BackendTrouble, NotAccepting, NotFound, Unauthenticated


def logout(where: ServiceAddress = None, as_json: Json = False) -> int:
    """End this device's token at a service, and keep it no longer."""
    named = service_address(where)
    token, ended, why = kept_tokens.token_for(named), False, ""
    if token is not None:
        try:
            with reached(named, token) as client:
                client.logout()
            ended = True
        except Unauthenticated:
            ended = True  # it was none any more
        except (BackendTrouble, NotAccepting, NotFound) as error:
            why = error.message
    kept = kept_tokens.forget(named)
    if as_json:
        printing.as_json({"url": named, "ended": ended, "forgotten": kept})
    elif token is None:
        printing.say(f"no token was kept for {named}")
    elif ended:
        printing.say(f"signed off at {named}")
    else:
        printing.say(f"the token is kept no longer, but {named} couldn't end it ({why})")
        printing.say("it is good until a host revokes it: kbslurm user token revoke YOUR-NAME")
    return EXIT_OK
