"""`kbslurm` alone: what is going on, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kbslurm.cli.acting import known_person
from kbslurm.cli.commands import COMMANDS
from kbslurm.cli.competitor.connect import reached
from kbslurm.cli.context import existing_store
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import board_json, board_json_over_http, closing_time_of
from kbslurm.cli.service_in_use import InUse, in_use
from kbslurm.errors import EXIT_OK, NotFound

LOOK_BACK = 50
SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What is going on: `at` is the service or database, None if nothing is set up; `signed_in`: whether it knows who
    asks; `mine` are their newest submissions."""

    at: str | None
    context: str | None = None
    person: str | None = None
    signed_in: bool = False
    boards: Sequence[Mapping[str, Any]] = ()
    mine: Sequence[Mapping[str, Any]] = ()

    @property
    def in_flight(self) -> list[Mapping[str, Any]]:
        return [one for one in self.mine if not one["done"]]

    @property
    def open_boards(self) -> list[Mapping[str, Any]]:
        return [one for one in self.boards if one["is_open"]]


def overview(*, as_json: bool) -> int:
    """Show the open boards, one's submissions in flight, and what to do next. Starts, makes and upgrades nothing."""
    found = _found()
    following = _next(found)
    if as_json:
        printing.as_json(
            {
                "at": found.at,
                "context": found.context,
                "person": found.person,
                "boards": [dict(one) for one in found.open_boards],
                "in_flight": [dict(one) for one in found.in_flight],
                "next": [{"command": command, "why": why} for command, why in following],
            }
        )
        return EXIT_OK
    _show(found)
    wide = max(len(command) for command, _ in following)
    printing.say("next:")
    for command, why in following:
        printing.say(f"  {command.ljust(wide)}  {why}")
    printing.say("kbslurm --help lists the commands, kbslurm COMMAND --help explains one")
    return EXIT_OK


def _found() -> Overview:
    if (named := in_use()) is not None:
        return _at_service(named)
    with existing_store() as store:
        if store is None:
            return Overview(at=None)
        from kbslurm.api import popcorn_submission
        from kbslurm.api.board_json import is_open

        now = datetime.now(UTC)
        boards = [{**board_json(one), "is_open": is_open(one, now)} for one in store.boards.all()]
        try:
            person = known_person(store, None, made=False)
        except NotFound:
            person = None
        mine = store.submissions.newest(person=person.id, limit=LOOK_BACK) if person else []
        return Overview(
            at=store.where,
            person=person.name if person else None,
            signed_in=True,
            boards=boards,
            mine=[popcorn_submission.summary(view) for view in mine],
        )


def _at_service(named: InUse) -> Overview:
    with reached(named.url, named.token, anybody=True) as client:
        signed_in = named.token is not None
        return Overview(
            at=named.url,
            context=named.context,
            person=client.me().name if signed_in else None,
            signed_in=signed_in,
            boards=[board_json_over_http(row) for row in client.board_rows()],
            mine=client.submission_rows(limit=LOOK_BACK) if signed_in else [],
        )


def _show(found: Overview) -> None:
    if found.at is None:
        printing.say("kbslurm runs a GPU kernel competition; on this machine nothing is set up yet")
        return
    who = f", as {found.person}" if found.person else "" if found.signed_in else ", not signed in"
    printing.say(f"kbslurm at {found.at}{f' (context {found.context})' if found.context else ''}{who}")
    boards = [
        (
            printing.escape(one["board"]),
            printing.escape(" ".join(one["gpus"])),
            closing_time_of(one["deadline_at"], one["zone"]),
        )
        for one in found.open_boards
    ]
    if boards:
        printing.table(("open board", "GPUs", "closes"), boards[:SHOWN])
        if len(boards) > SHOWN:
            printing.say(f"and {len(boards) - SHOWN} more: kbslurm board list")
    else:
        printing.say("no board is open")
    flight = [
        (
            f"#{one['id']}",
            printing.escape(one["leaderboard_name"]),
            one["mode"],
            printing.escape(one["file_name"]),
            ", ".join(f"{run['gpu_type']} {printing.coloured(run['standing'])}" for run in one["runs"]),
        )
        for one in found.in_flight
    ]
    if flight:
        printing.table(("in flight", "board", "mode", "file", "state"), flight[:SHOWN])
        if len(flight) > SHOWN:
            printing.say(f"and {len(flight) - SHOWN} more: kbslurm history")


def _next(found: Overview) -> list[tuple[str, str]]:
    """What to type next, and why."""
    can_join = [("kbslurm join CODE", "with an invitation")] if "join" in COMMANDS else []
    login = [("kbslurm login URL", "sign in to a service, with a token or an invitation")]
    if found.at is None:
        return [("kbslurm demo", "try a whole competition on this machine"), *login, *can_join]
    if not found.signed_in:
        return [(f"kbslurm login {found.at}", "sign in"), *can_join]
    steps = [(f"kbslurm watch {one['id']}", "follow it to its verdict") for one in found.in_flight[:1]]
    if not found.boards:
        steps.append(
            ("kbslurm board create NAME --gpus H100 --reference FILE.py", "if you are a host: the first board")
        )
    for board in found.open_boards[:1]:
        name = board["board"]
        if any(one["leaderboard_name"] == name and one["mode"] == "leaderboard" for one in found.mine):
            steps.append((f"kbslurm board {name} --mine", "your place, and how far the leader is"))
            steps.append((f"kbslurm submit FILE -l {name} --watch", "submit for the leaderboard"))
        else:
            steps.append((f"kbslurm submit FILE -l {name} --mode test --watch", "is it correct?"))
    return steps or [("kbslurm history", "what you submitted")]
