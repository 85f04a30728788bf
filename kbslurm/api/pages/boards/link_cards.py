"""What other sites show of a link to a page: for public boards, and the same whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

from kbslurm.api.context import Context
from kbslurm.api.pages.rendering import isolated
from kbslurm.domain import access
from kbslurm.store.views import Board

DESCRIBED = 200  # characters of a description


@dataclass(frozen=True, kw_only=True)
class Card:
    """Without an address and a picture where the service doesn't know its own, `server.public_url`."""

    title: str
    said: str
    address: str
    picture: str


def front_card(context: Context) -> Card:
    base = context.config.server.public_url.rstrip("/")
    said = "GPU kernel competitions: submit a kernel, see it measured, find your place."
    return Card(title="kbslurm", said=said, address=f"{base}/" if base else "", picture="")


def board_card(context: Context, board: Board, gpu: str = "") -> Card | None:
    """The card of a board's page, or without a GPU type of its problem's; None of a board that isn't public."""
    if not access.is_for_everybody(board.visibility):
        return None
    base = context.config.server.public_url.rstrip("/")
    of = gpu or next(iter(board.gpus), "")
    has_picture = base and of and access.shows_standings(board.standings)
    path = f"/board/{board.name}/{gpu}" if gpu else f"/problem/{board.name}"
    return Card(
        title=f"{board.name} on {gpu}" if gpu else board.name,
        said=_first_words(board.description or board.problem.description) or "A GPU kernel competition.",
        address=f"{base}{path}" if base else "",
        picture=f"{base}/board/{board.name}/{of}/picture.png" if has_picture else "",
    )


def embedded_at(context: Context, board: Board, gpu: str) -> str:
    """Where other sites find the board for a frame of theirs; empty where they can't."""
    base = context.config.server.public_url.rstrip("/")
    is_shared = base and access.is_for_everybody(board.visibility)
    return f"{base}/embed/board/{board.name}/{gpu}" if is_shared else ""


def _first_words(text: str) -> str:
    """The first paragraph of a description that isn't a heading, without marks of Markdown."""
    paragraphs = (" ".join(one.split()) for one in text.replace("\r\n", "\n").split("\n\n"))
    found = next((one for one in paragraphs if one and not one.startswith(("#", "```", "---"))), "").replace("`", "")
    return isolated(found if len(found) <= DESCRIBED else f"{found[: DESCRIBED - 1].rstrip()}…")
