"""Who calls: popcorn-cli's header, a web token, the hosts' bearer. Secrets are compared in constant time or by hash."""

from __future__ import annotations

import dataclasses
import hmac
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Header, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers

from kbslurm.api.context import Context
from kbslurm.domain import access
from kbslurm.errors import Banned, NoHost, NotFound, Refused, Unauthenticated, Unnamed
from kbslurm.store import origin
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
    """What a request claims about its sender, not verified yet."""

    key: str | None
    bearer: str | None
    acting: str | None
    roles: str | None = None


@dataclass(frozen=True, kw_only=True)
class Asker:
    """A person and their rights beyond submitting: by their own role here, or for this one call by a Discord role.

    `by` is their name in the audit log. Rights from a Discord role are recorded nowhere else.
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
            description="With the hosts' bearer token: whom the call is for, as person:ID, discord:ID or github:ID.",
        ),
    ] = None,
    roles: Annotated[
        str | None,
        Header(
            alias="X-Kbslurm-Discord-Roles",
            description="With the bot's bearer token: the Discord roles of that person, as GUILD:ROLE,ROLE.",
        ),
    ] = None,
) -> Given:
    """Read the headers; makes no queries."""
    return Given(key=cli or web, bearer=bearer.credentials if bearer else None, acting=acting, roles=roles)


Sender = Annotated[Given, Security(given)]


def claimed(headers: Headers) -> Given:
    """What `given` reads, before a request's body and parameters."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return Given(
        key=headers.get(_cli.model.name) or headers.get(_web.model.name) or None,
        bearer=bearer.strip() if scheme.lower() == "bearer" and bearer.strip() else None,
        acting=headers.get("x-kbslurm-acting-for"),
        roles=headers.get("x-kbslurm-discord-roles"),
    )


def caller(context: Context, sender: Given) -> Person:
    """The person who calls. Unnamed without a token, Unauthenticated with an unknown or revoked one."""
    if sender.acting and sender.bearer:
        if is_bot(context, sender):
            found = asker(context, sender)
            # A host by a Discord role sees what hosts see, but the database and the placement of runs ignore that role.
            is_host = found.right == "host" and not found.person.is_staff
            acting = check_not_banned(found.person)
            return dataclasses.replace(acting, role="staff") if is_host else acting
        return check_not_banned(_acting_for(context, sender, sender.acting)[1])
    if not sender.key:
        raise Unnamed("the header X-Popcorn-Cli-Id is missing", hint="Run: popcorn register discord")
    person = _person_of(context, sender.key)
    if person is None:
        raise Unauthenticated(
            "this token is unknown, was revoked, or isn't linked yet",
            hint="Link it (/link on Discord, or ask a host), or get a new one: popcorn reregister discord",
        )
    return check_not_banned(person)


def _person_of(context: Context, secret: str) -> Person | None:
    person = context.store.tokens.person_of(secret[:SECRET_CAP], now=context.clock.now())
    is_hosts = person is not None and access.has_staff_rights(person)
    context.known_secrets.note(secret, is_valid=access.may_sign_in(person), is_hosts=is_hosts)
    return person


def check_not_banned(person: Person) -> Person:
    """This person, or Banned: a ban ends every token at once, and lifting it brings them back."""
    if not access.may_sign_in(person):
        raise Banned(f"{person.name} is banned{f': {person.ban_reason}' if person.ban_reason else ''}")
    return person


def note_acting(context: Context, sender: Given, call: str) -> None:
    """Write into the audit log that a host has made this call for somebody else, if so: what it changed bears only that
    person's name. The bot isn't noted, since it passes on what they did themselves."""
    if sender.acting and sender.bearer and not is_bot(context, sender):
        by, whom = _acting_for(context, sender, sender.acting)
        context.store.events.audit(by, "act_for", f"person:{whom.id}", {"call": call}, now=context.clock.now())


def _acting_for(context: Context, sender: Given, whom: str) -> tuple[str, Person]:
    """The host's name, and the person that they act for."""
    by, person = acting_host(context, sender)
    found = _acted_for(context, whom)
    access.check_may_act_for(person, found)
    return by, found


def maybe_caller(context: Context, sender: Given) -> Person | None:
    """The person who calls, or None if anonymous: where no token is needed, a bad one is ignored.

    So is an unknown Discord account: the bot asks on behalf of anyone who types.
    """
    try:
        return caller(context, sender)
    except (Unauthenticated, NotFound, Banned):
        return None


def host(context: Context, sender: Given) -> str:
    """Who acts as a host: `admin` with the configured token, or a staff member with their own token.

    Without a configured admin token every such call is off. The bot itself isn't a host, but it may act for a person
    who is one, by their role here or by a Discord role that the configuration names.
    """
    by, _ = acting_host(context, sender)
    return by


def acting_host(context: Context, sender: Given) -> tuple[str, Person | None]:
    """As `host`, with the person; the configured token is nobody's."""
    if is_bot(context, sender):
        found = asker(context, sender)
        if found.right != "host":
            raise NoHost(
                f"{found.person.name} isn't a host",
                hint="Ask an owner to make you one.",
            )
        return found.by, found.person
    wanted = context.admin_token
    if wanted is None:
        raise Unauthenticated("the hosts' calls are turned off", hint="Set POPCORN_ADMIN_TOKEN on the server.")
    if not sender.bearer:
        raise Unauthenticated("the header Authorization: Bearer … is missing")
    if hmac.compare_digest(sender.bearer.encode("utf-8", "replace"), wanted.encode()):
        context.known_secrets.note(sender.bearer, is_valid=True, is_hosts=True)
        return ADMIN, None
    person = _person_of(context, sender.bearer)
    if person is None:
        raise Unauthenticated("this bearer token doesn't belong to a host")
    if not person.is_staff:  # nor is whoever is banned
        raise NoHost("this bearer token doesn't belong to a host")
    return person.name, person


def acting_helper(context: Context, sender: Given) -> tuple[str, Person | None]:
    """As `acting_host`, or whoever has a role on a board or a course; on which, and what they may there, the call must
    ask."""
    try:
        return acting_host(context, sender)
    except NoHost:
        if is_bot(context, sender):
            person: Person | None = asker(context, sender).person
        else:
            person = _person_of(context, sender.bearer or "")
        if person is None or person.service is not None or not access.may_sign_in(person):
            raise
        if not context.store.roster.helps(person.id):
            raise
        return person.name, person


def is_host(context: Context, sender: Given, person: Person) -> bool:
    """Whether this caller, who is that person, is a host, by their role here or by one on Discord."""
    return person.is_staff or (is_bot(context, sender) and asker(context, sender).right == "host")


def check_reaches_files(context: Context, sender: Given) -> None:
    """Refuse hosts who are so only by a Discord role: they may not name files on the server."""
    if is_bot(context, sender) and not asker(context, sender).person.is_staff:
        raise Refused(
            "a Discord role gives no access to files on the server", hint="Use OWNER/NAME or an https:// URL."
        )


def creator(context: Context, sender: Given) -> tuple[str, Person | None]:
    """Who creates a board: their name for the audit log, and the person if known. Every host may."""
    if not is_bot(context, sender):
        return acting_host(context, sender)
    found = asker(context, sender)
    if found.right is None:
        raise NoHost(f"{found.person.name} may not create boards", hint="This needs a host's or a creator's rights.")
    return found.by, found.person


def asker(context: Context, sender: Given) -> Asker:
    """Whom the bot calls for, and their rights now. Only the bot is trusted about Discord roles."""
    origin.narrowed("discord")
    if not sender.acting:
        raise NoHost("the bot isn't a host", hint="Name the person it acts for in X-Kbslurm-Acting-For.")
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
        raise NoHost("the roles can't be read", hint="X-Kbslurm-Discord-Roles must be GUILD:ROLE,ROLE.")
    return found[1], found[2].split(",") if found[2] else []


def service(context: Context, sender: Given) -> str:
    """Who may read the feed and look people up by Discord account: the bot with its own token, or a host."""
    if not is_bot(context, sender):
        return host(context, sender)
    origin.narrowed("discord")
    return BOT


def is_bot(context: Context, sender: Given) -> bool:
    """Whether the bearer token is the bot's, which by itself acts for nobody."""
    wanted = context.bot_token
    if wanted is None or not sender.bearer:
        return False
    found = hmac.compare_digest(sender.bearer.encode("utf-8", "replace"), wanted.encode())
    if found:
        context.known_secrets.note(sender.bearer, is_valid=True, is_hosts=True)
    return found


def _behind_the_bot(context: Context, whom: str) -> Person:
    """Discord authenticates only its own users to the bot, so no other account is accepted from it."""
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
