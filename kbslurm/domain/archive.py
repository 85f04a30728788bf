"""A board's archive: its tables, and what of them may be handed on. Pure.

A private archive has everything, for the host's own keeping. Any other one is for handing on: people are numbers that
say nothing of their accounts, teams likewise, nothing after a freeze is there, and of what `access` keeps to
its author or to hosts (code, logs, hidden cases) nothing is.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kbslurm.domain import access

FORMAT = 1
END = "end"  # the last line of an archive on its way: without it something is missing
Kind = Literal["int", "float", "bool", "text", "json", "ints", "floats"]
Row = Mapping[str, Any]

_MOMENT: Kind = "text"  # in ISO 8601
_SCORES: dict[str, Kind] = {"score_s": "float", "low_s": "float", "high_s": "float"}

# Rows are in the order of their numbers, so that tables can be read side by side.
TABLES: Mapping[str, Mapping[str, Kind]] = {
    "board": {
        "format": "int", "private": "bool", "written_at": _MOMENT, "version": "text", "leaderboard": "text",
        "description": "text", "problem": "text", "problem_version": "int", "deadline_at": _MOMENT, "zone": "text",
        "visibility": "text", "gpus": "json", "ranking": "text", "teams": "bool", "course": "text",
        "min_isolation": "int", "created_at": _MOMENT, "closed_at": _MOMENT, "frozen_at": _MOMENT,
        "shown_until": _MOMENT, "finalised_at": _MOMENT, "late": "json",
    },
    "problems": {"problem_version": "int", "problem": "text", "digest": "text", "created_at": _MOMENT,
                 "content": "json"},
    "images": {"place": "text", "gpu": "text", "image": "text", "digest": "text"},
    "people": {
        "person_id": "int", "name": "text", "student": "bool", "banned": "bool", "full_name": "text", "email": "text",
        "student_id": "text", "section": "text", "team": "text", "side": "text", "extra": "json",
    },
    "extensions": {"person_id": "int", "section": "text", "deadline_at": _MOMENT},
    "calibrations": {"problem_version": "int", "gpu": "text", "run": "int", "b_ref_s": "floats", "at": _MOMENT},
    "submissions": {
        "submission": "int", "person_id": "int", "team": "text", "mode": "text", "file_name": "text", "sha256": "text",
        "via": "text", "accepted_at": _MOMENT, "removed_at": _MOMENT, "late_s": "float", "source": "text",
    },
    "runs": {
        "run": "int", "submission": "int", "problem_version": "int", "gpu": "text", "state": "text", "counts": "bool",
        "may_rank": "bool", "second": "bool", "rejudging": "int", "queued_at": _MOMENT, "ended_at": _MOMENT,
        "reason": "text",
    },
    "attempts": {
        "run": "int", "attempt": "int", "place": "text", "gpu": "text", "state": "text", "ending": "text",
        "node": "text", "opened_at": _MOMENT, "started_at": _MOMENT, "ended_at": _MOMENT, "harness_digest": "text",
        "reason": "text", "telemetry": "json",
    },
    "verdicts": {
        "run": "int", "attempt": "int", "right_class": "bool", "verdict": "text", "reason": "text", **_SCORES,
        "isolation": "int", "ranked": "bool", "at": _MOMENT, "detail": "json",
    },
    "samples": {
        "run": "int", "phase": "text", "index": "int", "launch": "int", "rival": "int", "calls_ns": "ints",
        "trusted_null_ns": "ints", "null_ns": "ints", "bare_null_ns": "ints", "baseline_calls_ns": "ints",
        "baseline_trusted_null_ns": "ints", "baseline_null_ns": "ints", "baseline_bare_null_ns": "ints",
        "leeway_ns": "ints", "baseline_leeway_ns": "ints", "alone_ns": "ints",
    },
    "finals": {"final": "int", "problem_version": "int", "gpu": "text", "run": "int", "state": "text",
               "created_at": _MOMENT, "decided_at": _MOMENT, "rivals": "ints"},
    "final_scores": {"run": "int", "final": "int", **_SCORES, "person_id": "int", "team": "text"},
    "fixed_places": {"run": "int", **_SCORES},
    "standings": {
        "gpu": "text", "rank": "int", "best_rank": "int", "worst_rank": "int", "tied_with": "ints", "ranks": "ints",
        "person": "text", "person_id": "int", "team": "text", "submission": "int", "run": "int", **_SCORES,
        "submitted_at": _MOMENT,
    },
}  # fmt: skip

# Archives from before these columns are read as if nothing stood there.
ADDED_LATER = {
    "samples": ("leeway_ns", "baseline_leeway_ns", "alone_ns"),
    "final_scores": ("person_id", "team"),
}

# Where a verdict's detail is handed on: what its score follows from, and what the author's page shows of it.
_MEASURED = ("version", "mode", "verdict", "score_s", "interval_s", "isolation", "flags", "paired", "harness_digest",
             "problem_digest", "samples_sha256", "speed_of_light")  # fmt: skip
_OF_A_PROBLEM = ("name", "lang", "style", "description", "ranking_by", "limits", "budget", "multi_gpu", "gpus",
                 "templates", "modes", "cold")  # fmt: skip
TIMED = ("benchmark", "ranked")
WITHHELD = "withheld"


@dataclass(frozen=True, kw_only=True)
class Handed:
    """What of an archive's rows may be handed on, with a new name for everybody in each archive."""

    _people: dict[int, int] = field(default_factory=dict)
    _teams: dict[str, str] = field(default_factory=dict)

    def rows(self, table: str, rows: Iterable[Row]) -> Iterable[Row]:
        """These rows of a table as they may be handed on."""
        if table == "people":  # in an order that says nothing of who came first
            return sorted((self.row(table, row) for row in rows), key=lambda row: row["person_id"])
        return (self.row(table, row) for row in rows)

    def row(self, table: str, row: Row) -> Row:
        """One row of it."""
        told = dict(row)
        if told.get("person_id") is not None:
            told["person_id"] = self._number(told["person_id"])
        if told.get("team") is not None:
            told["team"] = self._team(told["team"])
        if told.get("section") is not None:
            told["section"] = None
        match table:
            case "problems":
                told["content"] = shown_problem(told["content"])
            case "images":
                told["image"] = str(told["image"]).rpartition("/")[2]  # where it lies is the cluster's business
            case "people":
                told |= {"name": name_of(told["person_id"]), "full_name": None, "email": None, "student_id": None}
                told |= {"extra": {}, "side": self._side(row, told)}
            case "submissions":
                told |= {"file_name": None, "sha256": None, "source": None}
            case "runs":
                told["reason"] = ""
            case "attempts":
                told |= {"node": None, "reason": "", "telemetry": {}}
            case "verdicts":
                told["reason"] = told["reason"] if told["verdict"] == "passed" else ""
                told["detail"] = shown_detail(told["detail"])
            case "standings":
                told["person"] = told["team"] or name_of(told["person_id"])
            case _:
                pass
        return told

    def _number(self, person: int) -> int:
        known = self._people.get(person)
        if known is None:
            known = _fresh(set(self._people.values()))
            self._people[person] = known
        return known

    def _team(self, team: str) -> str:
        known = self._teams.get(team)
        if known is None:
            known = self._teams[team] = f"team-{_fresh({int(one[5:], 16) for one in self._teams.values()}):08x}"
        return known

    def _side(self, row: Row, told: Row) -> str:
        kind, _, whose = str(row["side"]).partition(":")
        return f"team:{self._team(whose)}" if kind == "team" else f"person:{told['person_id']}"


def _fresh(taken: set[int]) -> int:
    while (found := secrets.randbelow(1 << 32)) in taken:
        pass
    return found


def name_of(number: int) -> str:
    """What a person is called in an archive that is handed on."""
    return f"person-{number:08x}"


def is_handed_on(table: str, row: Row) -> bool:
    """Whether a row may be handed on at all: nothing of hidden cases is."""
    return table != "samples" or not access.is_hidden(row["phase"])


def shown_detail(detail: Row | None) -> dict[str, Any] | None:
    """A verdict's detail without what only its author and hosts may see: how fast it was, and how that was measured."""
    if detail is None:
        return None
    told = {name: detail[name] for name in _MEASURED if name in detail}
    told["benchmarks"] = [{**row, "message": ""} for row in access.shown_cases(detail, "benchmarks")]
    told["phases"] = [{"name": row["name"], "passed": bool(row["passed"])} for row in detail.get("phases", ())]
    told["budget"] = {
        phase: {name: found[name] for name in ("declared", "launches") if name in found}
        for phase, found in (detail.get("budget") or {}).items()
        if phase in TIMED and isinstance(found, Mapping)
    }
    rivals = (detail.get("host") or {}).get("rivals")
    if isinstance(rivals, list):
        told["host"] = {"rivals": [{"verdict": row.get("verdict"), "reason": ""} for row in rivals]}
    return told


def shown_problem(content: Row) -> dict[str, Any]:
    """A problem without its reference, hidden cases and seed."""
    told = {name: content[name] for name in _OF_A_PROBLEM if name in content}
    told |= {"tests": content["tests"], "benchmarks": content["benchmarks"], "files": {}, "runner_files": []}
    told |= {"hidden": [], "warnings": []}
    if isinstance((content.get("config") or {}).get("baseline"), str):
        told["config"] = {"baseline": WITHHELD}
    told["sizes"] = {
        gpu: {name: cases for name, cases in lists.items() if name in ("tests", "benchmarks")}
        for gpu, lists in (content.get("sizes") or {}).items()
    }
    return told
