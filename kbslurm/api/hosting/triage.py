"""Hosts' acts about an external scanner's flags on what ranks, on one submission, or on a text. Never verdicts.

The scanner is asked by the service's own `Scans`; over HTTP `kbslurm triage` reads the source and scans it itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import NotAccepting, NotFound
from kbslurm.kernelguard import scanner

if TYPE_CHECKING:
    from kbslurm.domain.source import Source
    from kbslurm.kernelguard.scans import Scan, Scans
    from kbslurm.store.sources import Ranked
    from kbslurm.store.views import Board

NOTE = (
    "A flag is a reason to look, never a verdict: any rule can be worked around, and only what the harness measured"
    " decides."
)


class TriageActs(HostActs):
    """Flags. Nothing is stored."""

    def scanner_missing(self) -> str:
        """Why nothing can be scanned where the service runs, and what to do; empty if it can."""
        if scanner.version() is not None:
            return ""
        what = scanner.not_there().message
        return f"{what}. Where the service runs, in its environment, run {scanner.INSTALL}, then reload this page."

    def triage(
        self, scans: Scans, board: str, *, begin: int, limit: int, offset: int = 0
    ) -> Sequence[Mapping[str, Any]]:
        """What ranks on this board, with the flags on it: the best of each person, then the others, newest first. So
        many of the first of them are scanned if they weren't yet."""
        held = self.held(board)
        rows = self.store.sources.ranked(held.id, limit=limit, offset=offset)
        release = scanner.version()
        if release is None:
            return [_row(held, row, None, asked=False) for row in rows]
        begun = sum(self._asked(scans, release, row.sha256, row.submission) for row in rows[:begin])
        if begun:
            self.store.events.audit(self.by, "triage", f"board:{held.id}", {"scanned": begun}, now=self.now)
        return [
            _row(held, row, scans.known(_key(release, row.sha256)), asked=number < begin)
            for number, row in enumerate(rows)
        ]

    def triage_submission(self, scans: Scans, number: int) -> Mapping[str, Any]:
        """One submission with the flags on it. It is scanned if it wasn't yet."""
        view = self.store.submissions.get(SubmissionId(number))
        if not view.source:
            raise NotFound("source of submission", str(number), hint="Its author took it back, or a host removed it.")
        release, scan = scanner.version(), None
        if release is not None:
            if self._asked(scans, release, view.sha256, view.id):
                self.store.events.audit(self.by, "triage", f"submission:{view.id}", now=self.now)
            scan = scans.known(_key(release, view.sha256))
        return {
            "submission": view.id,
            "board": view.board,
            "person": view.person,
            "file_name": view.file_name,
            "submitted_at": view.accepted_at,
            **_told(scan, asked=release is not None),
        }

    def triage_text(self, scans: Scans, source: Source) -> Future[Scan]:
        """The scan of a text that isn't stored."""
        release = scanner.version()
        if release is None:
            raise scanner.not_there()
        found, is_new = scans.ask(_key(release, source.sha256), lambda: source.text, soon=True)
        if found is None:
            raise NotAccepting("too many scans are waiting", hint="Try again in a minute.")
        if is_new:
            told = {"file": source.file_name, "sha256": source.sha256}
            self.store.events.audit(self.by, "triage", "service:triage", told, now=self.now)
        return found

    def _asked(self, scans: Scans, release: str, sha256: str, number: int) -> bool:
        """Whether it is only now that this submission is scanned."""
        return scans.ask(_key(release, sha256), lambda: self.store.sources.text(number)[1])[1]


def told_scan(scan: Scan) -> Mapping[str, Any]:
    """What came of the scan of a text."""
    return _told(scan, asked=True)


def _key(release: str, sha256: str) -> str:
    return f"{release}:{sha256}"


def _row(board: Board, row: Ranked, scan: Scan | None, *, asked: bool) -> dict[str, Any]:
    return {
        "submission": row.submission,
        "board": board.name,
        "person": row.person,
        "file_name": row.file_name,
        "submitted_at": row.accepted_at,
        "best_on": row.best_on,
        **_told(scan, asked=asked),
    }


def _told(scan: Scan | None, *, asked: bool) -> dict[str, Any]:
    """`state`: `scanned`, `failed`, `waiting`, or `unscanned`: it isn't asked for here."""
    opinion = None if scan is None else scan.opinion
    state = "scanned" if opinion is not None else "failed" if scan is not None else "waiting" if asked else "unscanned"
    flags = [] if opinion is None else [vars(flag) for flag in opinion.flags]
    return {
        "state": state,
        "opinion": "" if opinion is None else opinion.opinion,
        "why": "" if scan is None else scan.why,
        "flags": flags,
        "rules": list(dict.fromkeys(flag["rule"] for flag in flags)),
    }
