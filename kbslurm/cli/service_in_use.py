"""Which service the commands use, if any: --context, else $KBSLURM_URL, else $KBSLURM_CONTEXT, else the context in use.

Without one they use the database. With one, no command opens a database by the way: it would be one that nobody serves.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kbslurm.cli.chosen import chosen
from kbslurm.cli.competitor import kept_tokens
from kbslurm.errors import Invalid, Misconfigured, NotFound

if TYPE_CHECKING:
    from kbslurm.config.settings import Config

URL = "KBSLURM_URL"
TOKEN = "KBSLURM_TOKEN"
CONTEXT = "KBSLURM_CONTEXT"


@dataclass(frozen=True, kw_only=True)
class InUse:
    """A service, this account's token for it, and what names it. `context` is its name, if it has one."""

    url: str
    context: str | None
    token: str | None
    named_by: str


def in_use() -> InUse | None:
    """The service to use; None: the database."""
    if chosen.context is not None:
        return _named(chosen.context, f"--context {chosen.context}")
    if named := os.environ.get(URL, "").strip():
        url = kept_tokens.address(named)
        if os.environ.get(TOKEN):  # address and token are given, so the file isn't asked
            return InUse(url=url, context=None, token=kept_tokens.token_for(url), named_by=URL)
        known = _book().at(url)
        token = None if known is None else kept_tokens.token_for(url)
        return InUse(url=url, context=known.name if known else None, token=token, named_by=URL)
    if name := os.environ.get(CONTEXT, "").strip():
        return _named(name, f"{CONTEXT}={name}")
    usual = _book().in_use
    return None if usual is None else _named(usual, f"the context in use, {usual},")


def check_none_in_use() -> None:
    """Refuse to open a database while a service is named."""
    found = in_use()
    if found is not None:
        raise Invalid(
            f"this command works only with the database, but {found.named_by} names {found.url}",
            hint=f"Run it where the service runs, as: kbslurm --context {kept_tokens.DATABASE} …",
        )


def say_database(config: Config, *, as_json: bool = False) -> None:
    """For commands that are about this machine's own service: one line on which database they use although a service
    is named."""
    from kbslurm.cli.output import printing

    try:
        found = in_use()
    except NotFound:
        found = None
    if found is not None:
        url = config.database_url
        where = f"the embedded one in {config.state_dir}" if url is None else without_password(url)
        said = f"this command uses the database that is configured here ({where}), not {found.url}"
        if as_json:
            print(json.dumps({"message": said}), file=sys.stderr)
        else:
            printing.err().print(printing.escape(said), soft_wrap=True)


def without_password(url: str) -> str:
    """A database's address as it may be shown."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'this machine'}{parts.path}"


def _named(name: str, named_by: str) -> InUse | None:
    if name == kept_tokens.DATABASE:
        return None
    known = kept_tokens.book().named(name)
    token = os.environ.get(TOKEN) or known.token
    token = None if token is None else kept_tokens.checked(token)
    return InUse(url=known.url, context=name, token=token, named_by=named_by)


def _book() -> kept_tokens.Book:
    """What is saved; an account without a home directory, like a service's, has saved nothing."""
    try:
        kept_tokens.file()
    except Misconfigured:
        return kept_tokens.Book()
    return kept_tokens.book()
