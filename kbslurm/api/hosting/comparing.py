"""Hosts' acts about similar sources: which pairs to look at, and the two side by side. Flags, never verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import similarity
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import files_of
from kbslurm.errors import Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.similarity import Document, Watch
    from kbslurm.store.sources import Listed
    from kbslurm.store.views import Board, SubmissionView

NOTE = "A similarity is a reason to look, never a verdict: read both sources before you ask anybody."
OF_EACH = 40  # of a person on a board: the newest; of each fewer where these are more than SOURCES_CAP
SOURCES_CAP = 3000
PAIRS_CAP = 500
BOARDS_CAP = 20
LEAST_PERCENT = 10
LINES_CAP = 20_000  # of each file, side by side


class ComparingActs(HostActs):
    """Similarity. Nothing is stored."""

    def similar(
        self,
        board: str,
        *,
        section: str | None = None,
        others: Sequence[str] = (),
        at_least: float = 100 * similarity.USUAL,
        watch: Watch = similarity.unwatched,
    ) -> Mapping[str, Any]:
        """Pairs of people with similar sources on this board, or on it and on the `others`; with a section only pairs
        in which somebody of it is. `watch` is told how far it is."""
        if not LEAST_PERCENT <= at_least <= 100:
            raise Invalid(
                f"{at_least:g} isn't a similarity in per cent", hint=f"Give a number from {LEAST_PERCENT} to 100."
            )
        held = self.held(board)
        if len(others) > BOARDS_CAP:
            raise Invalid(f"{len(others)} boards are too many to compare with", hint=f"Name at most {BOARDS_CAP}.")
        boards = list({one.id: one for one in (held, *map(self.held, others))}.values())
        listed = self.store.sources.listed([one.id for one in boards])
        rows = _that_fit(listed)
        among = frozenset(row.submission for row in rows.values() if _is_wanted(row, held, section))
        if section is not None and not among:
            raise NotFound("submission of section", section, known=_sections(rows.values(), held))
        known = _handed_out(boards)
        documents = [self._read(row, known) for row in watch(rows.values(), "reading sources")]
        found = similarity.similar(documents, among=among, at_least=at_least / 100, most=PAIRS_CAP, watch=watch)
        said = {"pairs": len(found), "with": [one.name for one in boards[1:]], "section": section, "at_least": at_least}
        self.store.events.audit(self.by, "similar", f"board:{held.id}", said, now=self.now)
        return {
            "leaderboard": held.name,
            "others": [one.name for one in boards[1:]],
            "section": section,
            "at_least": at_least,
            "sources": len(documents),
            "people": len({one.person for one in documents}),
            "left_out": len(listed) - len(rows),
            "cut": [one.submission for one in documents if one.cut],
            "note": NOTE,
            "pairs": [
                {
                    "similarity": round(100 * one.share, 1),
                    "pairs": one.pairs,
                    "left": _told(rows[one.left.submission]),
                    "right": _told(rows[one.right.submission]),
                }
                for one in found
            ],
        }

    def similar_pair(self, left: int, right: int) -> Mapping[str, Any]:
        """Two submissions' sources, with the lines that they have in common."""
        views = [self.store.submissions.get(SubmissionId(number)) for number in (left, right)]
        if left == right:
            raise Invalid(f"submission {left} is compared with itself", hint="Name two submissions.")
        for one in views:
            if not one.source:
                raise NotFound(
                    "source of submission", str(one.id), hint="Its author took it back, or a host removed it."
                )
        known = _handed_out([self.held(name) for name in dict.fromkeys(one.board for one in views)])
        documents = [
            similarity.document(
                files_of(one.file_name, one.source or ""), submission=one.id, person=one.person_id, side="", known=known
            )
            for one in views
        ]
        said = {"with": right}
        self.store.events.audit(self.by, "similar_pair", f"submission:{left}", said, now=self.now)
        return {
            "note": NOTE,
            "left": _side_told(views[0], documents[0], documents[1]),
            "right": _side_told(views[1], documents[1], documents[0]),
        }

    def _read(self, row: Listed, known: frozenset[int]) -> Document:
        name, text = self.store.sources.text(row.submission)
        return similarity.document(
            files_of(name, text), submission=row.submission, person=row.person, side=row.side, known=known
        )


def _that_fit(listed: Sequence[Listed]) -> dict[int, Listed]:
    """The newest of each person and board: as many of each as can be compared at once."""
    for each in range(OF_EACH, 0, -1):
        rows = {row.submission: row for row in listed if row.place <= each}
        if len(rows) <= SOURCES_CAP:
            return rows
    raise Invalid(
        f"{len(rows):,} people's sources are too many to compare at once",
        hint=f"Name fewer boards: {SOURCES_CAP:,} can be.",
    )


def _handed_out(boards: Sequence[Board]) -> frozenset[int]:
    """What these boards' problems hand out or bring along: templates, references and their other files."""
    texts: dict[tuple[str, str], None] = {}
    for one in boards:
        problem = one.problem
        texts |= dict.fromkeys((f"template.{problem.lang}", text) for text in problem.templates.values())
        texts |= dict.fromkeys(problem.files.items())
    return similarity.handed_out(texts)


def _is_wanted(row: Listed, board: Board, section: str | None) -> bool:
    in_section = section is None or (row.section or "").lower() == section.strip().lower()
    return row.board == board.name and in_section


def _sections(rows: Iterable[Listed], board: Board) -> list[str]:
    return sorted({row.section for row in rows if row.section and row.board == board.name})


def _told(row: Listed) -> dict[str, Any]:
    return {
        "submission": row.submission,
        "person_id": row.person,
        "name": row.name,
        "section": row.section,
        "team": row.team,
        "leaderboard": row.board,
        "submitted_at": row.accepted_at.isoformat(),
    }


def _side_told(view: SubmissionView, one: Document, other: Document) -> dict[str, Any]:
    marked = similarity.regions(one, other)
    files = files_of(view.file_name, view.source or "")
    shown = {name: "\n".join(text[: similarity.CHARACTERS_CAP].split("\n")[:LINES_CAP]) for name, text in files.items()}
    return {
        "submission": view.id,
        "name": view.person,
        "leaderboard": view.board,
        "submitted_at": view.accepted_at.isoformat(),
        "cut": one.cut or shown != files,
        "files": [
            {"name": name, "text": text, "marked": [[row.first, row.last] for row in marked if row.file == name]}
            for name, text in shown.items()
        ],
    }
