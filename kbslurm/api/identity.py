"""Who calls: popcorn-cli's header, a web token, the hosts' bearer. Secrets are compared in constant time or by hash."""

from __future__ import annotations

import dataclasses
import hmac
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Header, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from kbslurm.api.context import Context
from kbslurm.domain.run import PersonId
from kbslurm.errors import NoHost, NotFound, Refused, Unauthenticated, Unnamed
from kbslurm.store.views import Person

ADMIN = "admin"
BOT = "bot"
BOTS_PROVIDER = "discord"
SECRET_CAP = 512
Right = Literal["host", "creator"]
_ROLES = re.compile(r"([0-9]{1,20}):([0-9]{1,20}(?:,[0-9]{1,20}){0,255})?")

_cli = APIKeyHeader(name="X-Popcorn-Cli-Id", scheme_name="cli", description="A person's token.", auto_error=False)
_web = APIKeyHeader(name="X-Web-Auth-Id", scheme_name="web", description="A person's token.", auto_error=False)
_bearer = HTTPBearer(scheme_name="hosts", description="POPCORN_ADMIN_TOKEN.", auto_error=False)


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a request says of its sender, believed by nobody yet."""

    key: str | None
    bearer: str | None
    acting: str | None
    roles: str | None = None


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Somebody, and what they may beside submitting: by their own role here, or for this one call by one on Discord.

    `by` is their name as the audit log has it. A right by a Discord role is written nowhere else.
    """

    person: Person
    right: Right | None
    by: str


async def given(
    cli: Annotated[str | None, Security(_cli)] = None,
    web: Annotated[str | None, Security(_web)] = None,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None,
    acting: Annotated[
        str | None,
        Header(
            alias="X-Kbslurm-Acting-For",
            description="With the hosts' bearer: whom the call is for, as person:ID, discord:ID or github:ID.",
        ),
    ] = None,
    roles: Annotated[
        str | None,
        Header(
            alias="X-Kbslurm-Discord-Roles",
            description="With the bot's bearer: the Discord roles of whom the call is for, as GUILD:ROLE,ROLE.",
        ),
    ] = None,
) -> Given:
    """Read the headers; asks nobody."""
    return Given(key=cli or web, bearer=bearer.credentials if bearer else None, acting=acting, roles=roles)


Sender = Annotated[Given, Security(given)]


def caller(context: Context, sender: Given) -> Person:
    """The person who calls. Unnamed without a token, Unauthenticated with one that isn't good any more."""
    if sender.acting and sender.bearer:
        if is_bot(context, sender):
            found = asker(context, sender)
            # A host by a Discord role sees what hosts see. Rows, and what may run where, know nothing of it.
            is_host = found.right == "host" and not found.person.is_staff
            return dataclasses.replace(found.person, role="staff") if is_host else found.person
        host(context, sender)
        return _acted_for(context, sender.acting)
    if not sender.key:
        raise Unnamed("the header X-Popcorn-Cli-Id is missing", hint="Run: popcorn register discord")
    person = context.store.tokens.person_of(sender.key[:SECRET_CAP], now=context.clock.now())
    if person is None:
        raise Unauthenticated(
            "this token isn't known, was revoked, or waits to be linked",
            hint="Link it (/link on Discord, or a host), or get another: popcorn reregister discord",
        )
    return person


def maybe_caller(context: Context, sender: Given) -> Person | None:
    """The person who calls, or None for anybody: where a token is not needed, a bad one does no harm.

    Nor does a Discord account of which nobody has heard yet: the bot asks for whoever types.
    """
    try:
        return caller(context, sender)
    except (Unauthenticated, NotFound):
        return None


def host(context: Context, sender: Given) -> str:
    """Who acts as a host: `admin` by the configured token, or a member of staff by a token of their own.

    With no admin token configured every such call is off. The bot is no host: what it asks for somebody who is, it may,
    be they one here or by a Discord role that the configuration names.
    """
    if is_bot(context, sender):
        found = asker(context, sender)
        if found.right != "host":
            raise NoHost(f"{found.person.name} is no host", hint="Hosts decide who is, in kbslurm or by role.")
        return found.by
    wanted = context.admin_token
    if wanted is None:
        raise Unauthenticated("the hosts' calls are off", hint="POPCORN_ADMIN_TOKEN isn't set on the server.")
    if not sender.bearer:
        raise Unauthenticated("the header Authorization: Bearer … is missing")
    if hmac.compare_digest(sender.bearer.encode("utf-8", "replace"), wanted.encode()):
        return ADMIN
    person = context.store.tokens.person_of(sender.bearer[:SECRET_CAP], now=context.clock.now())
    if person is None:
        raise Unauthenticated("this bearer is no host's")
    if not person.is_staff:
        raise NoHost("this bearer is no host's")
    return person.name


def check_reaches_files(context: Context, sender: Given) -> None:
    """Refuse whoever is a host by a Discord role alone: the server's own files aren't theirs to name."""
    if is_bot(context, sender) and not asker(context, sender).person.is_staff:
        raise Refused("a Discord role doesn't reach the server's own files", hint="Name OWNER/NAME or an https:// URL.")


def creator(context: Context, sender: Given) -> tuple[str, PersonId | None]:
    """Who makes a board: their name for the audit log, and the person where one is known. Every host may."""
    if not is_bot(context, sender):
        return host(context, sender), None
    found = asker(context, sender)
    if found.right is None:
        raise NoHost(f"{found.person.name} may not make boards", hint="Hosts and creators may.")
    return found.by, found.person.id


def asker(context: Context, sender: Given) -> Asker:
    """Whom the bot calls for, and what they may now. Only the bot's word on Discord roles is taken."""
    if not sender.acting:
        raise NoHost("the bot is no host", hint="It says for whom it calls: X-Kbslurm-Acting-For.")
    person = _behind_the_bot(context, sender.acting)
    if person.banned_at is not None:
        return Asker(person=person, right=None, by=person.name)
    if person.is_staff:
        return Asker(person=person, right="host", by=person.name)
    guild, held = _discord_roles(sender.roles)
    given = context.config.discord.roles
    for right in ("host", "creator"):
        role = next((one for one in held if given.get(one) == right), None)
        if role is not None:
            return Asker(person=person, right=right, by=f"{person.name} (Discord role {role} in {guild})")
    return Asker(person=person, right=None, by=person.name)


def _discord_roles(text: str | None) -> tuple[str, list[str]]:
    if not text:
        return "", []
    found = _ROLES.fullmatch(text)
    if found is None:
        raise NoHost("the roles can't be read", hint="X-Kbslurm-Discord-Roles is GUILD:ROLE,ROLE.")
    return found[1], found[2].split(",") if found[2] else []


def service(context: Context, sender: Given) -> str:
    """Who reads the feed and knows people by their Discord accounts: the bot by its own token, or a host."""
    return BOT if is_bot(context, sender) else host(context, sender)


def is_bot(context: Context, sender: Given) -> bool:
    """Whether the bearer is the bot's. It stands for nobody by itself."""
    wanted = context.bot_token
    if wanted is None or not sender.bearer:
        return False
    return hmac.compare_digest(sender.bearer.encode("utf-8", "replace"), wanted.encode())


def _behind_the_bot(context: Context, whom: str) -> Person:
    """Discord has proved its users to the bot and nobody else: no other account is believed from there."""
    if whom.partition(":")[0] != BOTS_PROVIDER:
        raise NoHost("the bot may only act for discord:ID")
    return _acted_for(context, whom)


def _acted_for(context: Context, whom: str) -> Person:
    provider, _, account = whom.partition(":")
    found: Person | None = None
    if provider == "person":
        found = context.store.people.by_name_or_id(account)
    elif account:
        found = context.store.people.by_account(provider, account)
    if found is None:
        raise NotFound("person", whom, hint="Link the account first.")
    return found
