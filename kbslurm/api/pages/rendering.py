"""Renders templates: everything escaped, nothing undefined, and a content policy that lets no foreign script run."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kbslurm import __version__
from kbslurm.api import sessions
from kbslurm.api.pages.text.highlighting import highlighted
from kbslurm.api.pages.text.markdown import prose
from kbslurm.domain import contest, lateness
from kbslurm.domain.amounts import score, seconds, unit_of
from kbslurm.store.views import Board

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY"}
STATIC = {
    "style.css": "text/css; charset=utf-8",
    "countdown.js": "text/javascript; charset=utf-8",
    "front.js": "text/javascript; charset=utf-8",
    "hall.js": "text/javascript; charset=utf-8",
    "board.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "private.js": "text/javascript; charset=utf-8",
    "submit.js": "text/javascript; charset=utf-8",
    "copy.js": "text/javascript; charset=utf-8",
    "light.css": "text/css; charset=utf-8",
    "dark.css": "text/css; charset=utf-8",
    "embedded.js": "text/javascript; charset=utf-8",
    "time.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
SHEETS = "css"  # the folder whose files are the stylesheet, one after another
# The stylesheet in one theme, whatever the reader's browser asks for: what it says of the dark one, and instead.
_IN_DARK, _SCHEMES = b"@media (prefers-color-scheme: dark)", b"color-scheme: light dark"
THEMES = {"light.css": (b"@media not all", b"color-scheme: light"), "dark.css": (b"@media all", b"color-scheme: dark")}
TOGETHER = {"board.js": ("live.js", "board.js"), "front.js": ("live.js", "countdown.js")}  # one request instead of two


@cache
def static_file(name: str) -> bytes:
    """One of `STATIC`, from the package. The stylesheet is one file for browsers, and one per subject for us."""
    folder = resources.files("kbslurm.api.pages").joinpath("static")
    if name in THEMES:
        in_dark, scheme = THEMES[name]
        return static_file("style.css").replace(_IN_DARK, in_dark).replace(_SCHEMES, scheme)
    if name != "style.css":
        return b"".join(folder.joinpath(one).read_bytes() for one in TOGETHER.get(name, (name,)))
    sheets = sorted(
        (one for one in folder.joinpath(SHEETS).iterdir() if one.name.endswith(".css")), key=lambda one: one.name
    )
    return b"".join(one.read_bytes() for one in sheets)


@cache
def packed_file(name: str) -> bytes:
    """The same, compressed once."""
    return gzip.compress(static_file(name), mtime=0)


@cache
def asset(name: str) -> str:
    """Where a page finds one of `STATIC`: an address that changes with what is in it, so that browsers may keep it."""
    return f"/static/{name}?v={static_version(name)}"


@cache
def static_version(name: str) -> str:
    return hashlib.sha256(static_file(name)).hexdigest()[:12]


# Pages that stand alone have the style in themselves, and nothing else.
STYLE = Markup(static_file("style.css").decode())  # noqa: S704 - ours
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
ALONE = {
    **HEADERS,
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def measured(row: Mapping[str, Any]) -> str:
    """A score with its interval."""
    return score(row["score_s"], row["low_s"], row["high_s"], ranked=bool(row.get("ranked")))


def took(seconds: float | None) -> str:
    """A duration in a suitable unit, with four significant digits."""
    if seconds is None:
        return "–"
    scale, unit = unit_of(seconds, digits=4)
    return f"{seconds / scale:.4g} {unit}"


def when(at: datetime | str | None) -> str:
    """A time, or its ISO text, to the minute, in its own time zone."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return "–" if at is None else f"{at:%Y-%m-%d %H:%M} {at.tzname() or ''}".rstrip()


def isolated(text: str) -> str:
    """Somebody's text within a sentence: one that is read from right to left doesn't reorder what stands around it."""
    return text if text.isascii() else f"\u2068{text}\u2069"


def closes(board: Board) -> str:
    """When a board closes, in its own zone; empty if it doesn't."""
    return "" if board.deadline_at is None else contest.at_home(board.deadline_at, board.zone)


_templates = Environment(
    loader=PackageLoader("kbslurm.api.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[],
    auto_reload=False,  # or every page looks whether its files have changed
)
_templates.globals.update(version=__version__, asset=asset, highlighted=highlighted)
_templates.filters.update(
    prose=prose, took=took, timed=seconds, when=when, closes=closes, measured=measured, late=lateness.span_text
)


def page(template: str, *, status: int = 200, person: Any = None, csrf: str = "", **told: Any) -> HTMLResponse:
    """The rendered template. `person` is who is signed in, `csrf` the token that this session's forms must carry."""
    return HTMLResponse(text_of(template, person=person, csrf=csrf, **told), status_code=status, headers=HEADERS)


def text_of(template: str, *, person: Any = None, csrf: str = "", **told: Any) -> Markup:
    """The same as text; templates may contain it as it is."""
    return Markup(_templates.get_template(template).render(person=person, csrf=csrf, **told))  # noqa: S704 - rendered


def block(template: str, name: str, **told: Any) -> str:
    """One block of a template."""
    found = _templates.get_template(template)
    return "".join(found.blocks[name](found.new_context(told)))


def page_of_error(request: Request, status: int, detail: str) -> HTMLResponse | None:
    """The error as a page for browsers; None for clients, which get JSON."""
    if "text/html" not in request.headers.get("accept", ""):
        return None
    return page("error.html", status=status, status_code=status, detail=detail, is_known=_is_known(request))


def _is_known(request: Request) -> bool:
    """Whether this browser was somebody's lately, without asking the database, which may be why there is an error."""
    return request.app.state.context.known_secrets.name_of(sessions.secret_of(request) or "") is not None
