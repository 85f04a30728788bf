"""A contest's pure rules: names of boards, GPUs and people, and when a board closes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Literal, assert_never, get_args
from zoneinfo import ZoneInfo

from kbslurm.domain.access import NamesShown, Role, StandingsShown, Visibility
from kbslurm.errors import Invalid, NotFound

Provider = Literal["discord", "github", "oidc"]
ACCOUNT_PROVIDERS: tuple[Provider, ...] = get_args(Provider)

# Words that popcorn-cli's paths use in place of a board name.
RESERVED_NAMES = frozenset({"admin", "submission", "user", "auth", "health", "leaderboards", "gpus"})
NAME_CAP = 64
WHOM_CAP = 100
DESCRIPTION_CAP = 4000
NOTE_CAP = 200  # a ban's reason, a device, a name before it is checked
ACCOUNT_CAP = 300
MOST_GPUS = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_PROVIDERS_NUMBER = re.compile(r"[1-9][0-9]{0,19}\Z")  # of Discord, of GitHub
_PROVIDERS_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}\Z")  # OpenID Connect's: at most 255 ASCII characters
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_ONE_DIGIT_HOUR = re.compile(r"(\d{4}-\d{2}-\d{2} )(\d:\d{2}.*)")
# In the system's folder of zones too: what another machine has under these names is another time, or with leap seconds.
_NO_ZONES = frozenset({"localtime", "Factory", "posixrules", "posix", "right"})
_END_OF_DAY = time(23, 59, 59)
_HINT = "Write 2026-05-31 (the end of that day), 2026-05-31 18:00, or 2026-05-31T18:00:00+02:00."


def too_long(what: str, length: int, most: int) -> str:
    """The sentence for a text that is too long, wherever it is found out."""
    return f"{what} is too long: {length:,} characters, at most {most:,}"


def within(what: str, text: str, most: int) -> str:
    """The text, or Invalid if it is longer."""
    if len(text) > most:
        raise Invalid(too_long(what, len(text), most))
    return text


def board_name(text: str) -> str:
    """The board's name in canonical form, or Invalid. Names go into paths unescaped and are case-insensitive."""
    name = text.strip().lower()
    if not _NAME.match(name) or len(name) > NAME_CAP:
        raise Invalid(
            f"{text!r} isn't a valid board name",
            hint=f"Use at most {NAME_CAP} letters a-z and digits, and . _ - after the first.",
        )
    if name in RESERVED_NAMES:
        raise Invalid(f"{name!r} can't be a board's name: the API reserves this word", hint="Pick another name.")
    return name


def is_slug(name: str) -> bool:
    """Whether it is a name as boards, teams and courses have: lower case, and fit for a path."""
    return len(name) <= NAME_CAP and _NAME.match(name) is not None


def team_name(text: str) -> str:
    """The team's name in canonical form, or Invalid: it is used in the configuration as well and is
    case-insensitive."""
    name = text.strip().lower()
    if not _NAME.match(name) or len(name) > NAME_CAP:
        raise Invalid(
            f"{text[: 2 * NAME_CAP]!r} isn't a valid team name",
            hint=f"Use at most {NAME_CAP} letters a-z and digits, and . _ - after the first.",
        )
    return name


def cluster_account(text: str) -> str:
    """An account of a cluster's own accounting as written, or Invalid: it goes into job scripts."""
    name = text.strip()
    if not _ACCOUNT.match(name) or len(name) > NAME_CAP:
        raise Invalid(
            f"{text[: 2 * NAME_CAP]!r} isn't a valid cluster account",
            hint=f"Use at most {NAME_CAP} letters and digits, and . _ - after the first; see sacctmgr show assoc.",
        )
    return name


def account(text: str) -> tuple[Provider, str]:
    """An account's provider, and what that calls the person; Invalid if it isn't discord:ID, github:ID or
    oidc:SUBJECT."""
    provider, _, name = text.partition(":")
    for known in ACCOUNT_PROVIDERS:
        if provider == known:
            return known, account_at(known, name)
    raise Invalid(f"{shown(text)} isn't a valid account", hint="Write discord:ID, github:ID or oidc:SUBJECT.")


def account_at(provider: Provider, name: str) -> str:
    """What this provider calls the person, as written, or Invalid: a mistyped one would be nobody's, forever."""
    match provider:
        case "discord" | "github":
            called = {"discord": "Discord", "github": "GitHub"}[provider]
            if not _PROVIDERS_NUMBER.match(name):
                how = {
                    "discord": "Copy it with Copy User ID, in Discord's developer mode.",
                    "github": "It is the id at https://api.github.com/users/NAME.",
                }[provider]
                raise Invalid(f"{shown(name)} isn't a {called} ID: that is a number, not a name", hint=how)
        case "oidc":
            if not _PROVIDERS_SUBJECT.match(name):
                raise Invalid(
                    f"{shown(name)} isn't a subject of OpenID Connect",
                    hint="Write oidc: and the provider's sub claim: at most 255 ASCII characters without spaces.",
                )
        case _:
            assert_never(provider)
    return name


def shown(text: str) -> str:
    """Somebody's text in a sentence: quoted, and not all of it if it is long."""
    return repr(text if len(text) <= 2 * NAME_CAP else f"{text[: 2 * NAME_CAP]}…")


def gpu_name(text: str) -> str:
    """A GPU type's name as written, or Invalid: clients cut names by bytes, so they are ASCII."""
    name = text.strip()
    if not _GPU.match(name) or len(name) > NAME_CAP:
        raise Invalid(f"{text!r} isn't a valid GPU name", hint="Use letters and digits, and . _ - after the first.")
    return name


def known_gpu(text: str, known: Sequence[str]) -> str:
    """The matching GPU type of this list, in any case; otherwise NotFound with the list."""
    for name in known:
        if name.lower() == text.strip().lower():
            return name
    raise NotFound("GPU", text.strip(), known=known)


def as_known(gpus: Sequence[str], known: Sequence[str]) -> list[str]:
    """Valid names of GPU types, spelt as the places do; one that no place has stays as it is written."""
    spelt = {name.lower(): name for name in known}
    return [spelt.get(name.lower(), name) for name in map(gpu_name, gpus)]


def unknown_gpus(gpus: Sequence[str], known: Sequence[str]) -> list[str]:
    """A warning for each GPU type that no place offers, with those that there are."""
    there = f"; known are: {', '.join(sorted(known))}" if known else ""
    return [f"no place offers {gpu} at the moment, so submissions will wait{there}" for gpu in gpus if gpu not in known]


def shown_visibility(visibility: Visibility) -> str:
    """What people call it: a board by invitation is private. On the wire that is `closed`, which people take for
    over."""
    return "private" if visibility == "closed" else "public"


def visibility(text: str) -> Visibility:
    """The visibility with this name, in people's words or the wire's; otherwise Invalid."""
    match text.strip().lower():
        case "public":
            return "public"
        case "private" | "closed":
            return "closed"
        case _:
            raise Invalid(f"{text!r} isn't a valid visibility", hint="Choose public or private.")


def role(text: str) -> Role:
    """The role with this name; otherwise Invalid."""
    match text.strip().lower():
        case "owner" | "staff" | "participant" as known:
            return known
        case _:
            raise Invalid(f"{text[:40]!r} isn't a valid role", hint="Choose owner, staff or participant.")


def names_shown(text: str) -> NamesShown:
    """By which names others see people; otherwise Invalid."""
    match text.strip().lower():
        case "real" | "nicknames" | "anonymous" as known:
            return known
        case _:
            raise Invalid(f"{text[:40]!r} isn't a way to name people", hint="Choose real, nicknames or anonymous.")


def standings_shown(text: str) -> StandingsShown:
    """Whether others see standings; otherwise Invalid."""
    match text.strip().lower():
        case "shown" | "own" | "hidden" as known:
            return known
        case _:
            raise Invalid(f"{text[:40]!r} isn't a way to show standings", hint="Choose shown, own or hidden.")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A question that offers the names that are spelt like this one; empty if there are none."""
    by_fold = {one.casefold(): one for one in known}
    like = difflib.get_close_matches(name.strip().casefold(), by_fold, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(by_fold[one] for one in like)}?" if like else ""


def zone(name: str) -> ZoneInfo:
    """The time zone with this name, or Invalid."""
    try:
        if name.partition("/")[0] in _NO_ZONES:
            raise LookupError(name)
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        # ZoneInfoNotFoundError is a LookupError; "America" is a folder of zones (IsADirectoryError), ".." a ValueError.
        raise Invalid(f"{name!r} isn't a known time zone", hint="Use a name like Europe/Berlin, or UTC.") from None


def parsed_deadline(text: str, zone_name: str = "UTC") -> datetime:
    """The time at which a board closes, in UTC.

    `YYYY-MM-DD` means the end of that day (23:59:59), since that is what people mean by "until the 31st".
    `YYYY-MM-DD HH:MM[:SS]` is that exact time. Both are in `zone_name` unless they have their own offset.
    """
    home = zone(zone_name)
    written = _ONE_DIGIT_HOUR.sub(r"\g<1>0\g<2>", text.strip())
    try:
        if _DATE.match(written):
            moment = datetime.combine(date.fromisoformat(written), _END_OF_DAY)
        else:
            moment = datetime.fromisoformat(written)
            if "T" not in written.upper() and " " not in written:
                raise ValueError("no time of day")
        return (moment if moment.tzinfo else _local(moment, home)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(f"{text!r} isn't a valid deadline", hint=_HINT) from None


def _local(moment: datetime, home: ZoneInfo) -> datetime:
    """That local time; Invalid if the clocks skip it there, or show it twice."""
    first, second = moment.replace(tzinfo=home), moment.replace(tzinfo=home, fold=1)
    if first.utcoffset() == second.utcoffset():
        return first
    told = f"{moment:%Y-%m-%d %H:%M:%S}"
    if first.astimezone(UTC) < second.astimezone(UTC):
        raise Invalid(
            f"{told} happens twice in {home.key}, where the clocks are put back",
            hint=f"Write {first.isoformat()} for the first time, {second.isoformat()} for the second.",
        )
    exists = first.astimezone(UTC).astimezone(home)
    raise Invalid(
        f"{told} doesn't exist in {home.key}, where the clocks are put forward",
        hint=f"Did you mean {exists:%Y-%m-%d %H:%M}?",
    )


def coming_deadline(text: str, zone_name: str, now: datetime, *, what: str = "deadline") -> datetime:
    """A deadline that hasn't passed yet, in UTC; Invalid with the time that was understood."""
    found = parsed_deadline(text, zone_name)
    if closed(found, now):
        raise Invalid(
            f"the {what} {at_home(found, zone_name)} has passed already",
            hint=f"Pick one in the future; it is {at_home(now, zone_name)} now.",
        )
    return found


def at_home(at: datetime, zone_name: str) -> str:
    """A time to the minute in a board's own zone, and the zone: `2026-12-24 18:00 Europe/Berlin`."""
    return f"{at.astimezone(zone(zone_name)):%Y-%m-%d %H:%M} {zone_name}"


def closed(deadline: datetime | None, now: datetime) -> bool:
    """Whether the deadline has passed. A board without one never closes; a submission exactly at the deadline is still
    in time."""
    return deadline is not None and now > deadline
