"""`kbslurm submission list|show|code`: submissions of the boards that one may grade, and one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kbslurm.cli.arguments import As, Json, SubmissionNumber, checked_mode, submission_number
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import contest
from kbslurm.domain.lookup import parsed_since, verdict_named
from kbslurm.domain.source import files_of
from kbslurm.errors import EXIT_OK, Invalid, NotFound, Refused, Unauthenticated

if TYPE_CHECKING:
    from kbslurm.cli.host.connect import Hosts
    from kbslurm.client.http import Client

PAGE = 100  # the most that the service returns at once
T = TypeVar("T")


def list_(
    board: Annotated[str | None, typer.Option("--board", "-b", help="Only this board.")] = None,
    person: Annotated[str | None, typer.Option("--person", "-p", help="Only this person's.")] = None,
    verdict: Annotated[str | None, typer.Option(help="Only those of which a run has this verdict.")] = None,
    mode: Annotated[str | None, typer.Option(help="Only this mode.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only those since then: 2026-11-27, 2026-11-27 14:00, or 12h, 7d ago.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to show.")] = 20,
    skip: Annotated[int, typer.Option(min=0, help="Skip the newest ones.")] = 0,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """List submissions, newest first: those of the boards that you may grade, and your own.

    With the database, those of everybody, unless --as says who looks.
    """
    wanted: dict[str, Any] = {
        "board": board,
        "verdict": None if verdict is None else verdict_named(verdict),
        "mode": None if mode is None else checked_mode(mode),
        "since": None if since is None else parsed_since(since, datetime.now(UTC)),
    }
    with host(as_) as hosts:
        found = _all(lambda at, step: _rows(hosts, person, wanted, at, step), limit, skip)
    if as_json:
        printing.as_json({"submissions": found})
        return EXIT_OK
    rows = [
        (
            f"#{one['id']}",
            printing.escape(one["leaderboard_name"]),
            printing.escape(one.get("user_name", "you")),
            one["mode"],
            printing.escape(one["file_name"]),
            printing.when_told(one["submission_time"]),
            ", ".join(_run(run) for run in one["runs"]),
        )
        for one in found
    ]
    if rows:
        printing.table(("number", "board", "by", "mode", "file", "when", "outcome"), rows)
    else:
        printing.say("no submission matches")
    if len(rows) == limit:
        printing.say(f"--skip {skip + limit} shows older ones")
    return EXIT_OK


def show_(
    number: SubmissionNumber,
    log: Annotated[bool, typer.Option("--log", help="Show the logs; to hosts also the hidden cases'.")] = False,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Show a submission: its verdicts, and with --log its logs."""
    with host(as_) as hosts:
        found = _one(hosts, number)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    by = f" by {found['user_name']}" if "user_name" in found else ""
    where = f"{found['leaderboard_name']}, {found['mode']}, {printing.when_told(found['submission_time'])}"
    by += " (an agent's)" if found.get("via") == "agent" else ""
    gone = ", taken back" if found.get("removed_at") else ""
    printing.say(f"#{found['id']} {found['file_name']}{by} on {where}: {found['job']['status']}{gone}")
    for run in found["runs"]:
        hidden = "hidden cases" if run["secret"] else run["mode"]
        score = "" if run["score"] is None else f"  {printing.score(float(run['score']), None, None)}"
        why = f"  not ranked: {run['not_ranked']}" if run["not_ranked"] else ""
        printing.say(f"{run['runner']:>6}  {hidden}: {'passed' if run['passed'] else 'not passed'}{score}{why}")
    if found["job"]["error"]:
        printing.say(found["job"]["error"])
    if log:
        for heading, key in (("log", "log"), ("log of the hidden cases", "secret_log")):
            if found.get(key):
                printing.say(f"{heading}:")
                printing.say(found[key])
    return EXIT_OK


def code(
    numbers: Annotated[
        list[int], typer.Argument(metavar="NUMBER...", help="The submissions' numbers.", parser=submission_number)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write it into this folder, a folder for each number.")
    ] = None,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Print the code of submissions, or write it into a folder as it was sent.

    On standard output, whatever would steer a terminal is replaced; --out changes nothing.
    """
    with host(as_) as hosts:
        found = {number: _files(_one(hosts, number)) for number in dict.fromkeys(numbers)}
    written: list[str] = []
    if out is not None:
        _check_free(out, found)
        for number, files in found.items():
            written += _write(out / str(number), files)
    if as_json:
        told = [{"submission": number, "files": files} for number, files in found.items()]
        printing.as_json({"submissions": told, "written": written})
        return EXIT_OK
    for path in written:
        printing.say(f"wrote {path}")
    if out is None:
        alone = len(found) == 1
        for number, files in found.items():
            for name, text in files.items():
                if not alone or len(files) > 1:
                    printing.say(f"==> #{number} {name} <==")
                printing.say(text.removesuffix("\n"))
    return EXIT_OK


def _all(page: Callable[[int, int], Sequence[T]], limit: int, skip: int) -> list[T]:
    found: list[T] = []
    while len(found) < limit:
        step = min(PAGE, limit - len(found))
        rows = page(skip + len(found), step)
        found += rows
        if len(rows) < step:
            break
    return found


def _rows(
    hosts: Hosts, person: str | None, wanted: Mapping[str, Any], offset: int, limit: int
) -> Sequence[Mapping[str, Any]]:
    """As a host or helper; whoever has no such rights sees their own."""
    try:
        return hosts.find_submissions(person=person, **wanted, limit=limit, offset=offset)
    except Unauthenticated:
        client = _client(hosts)
        if client is None or person is not None:
            raise
        return client.submission_rows(**wanted, limit=limit, offset=offset)


def _one(hosts: Hosts, number: int) -> Mapping[str, Any]:
    """With what hosts see of it, if they may; else as its author."""
    try:
        return hosts.any_submission(number)
    except (Unauthenticated, Refused):
        client = _client(hosts)
        if client is None:
            raise
        return client.own_submission(number)


def _client(hosts: Hosts) -> Client | None:
    from kbslurm.client.http import Client

    return hosts if isinstance(hosts, Client) else None


def _files(found: Mapping[str, Any]) -> dict[str, str]:
    if not found["code"]:
        raise NotFound("code of submission", str(found["id"]), hint="It was taken back, and its source deleted.")
    return files_of(found["file_name"], found["code"])


def _check_free(out: Path, found: Mapping[int, Mapping[str, str]]) -> None:
    """Before anything is written: nothing is overwritten, and nothing is written outside of the folder."""
    for number, files in found.items():
        if (out / str(number)).exists():
            raise Invalid(
                f"{printing.path(out / str(number))} exists already", hint="Remove it, or choose another folder."
            )
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or not path.parts or ".." in path.parts or "\\" in name or not name.isprintable():
                raise Invalid(f"submission {number} has a file with the unsafe name {contest.shown(name)}")


def _write(folder: Path, files: Mapping[str, str]) -> list[str]:
    written = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            written.append(printing.path(path))
    except OSError as error:
        raise Invalid(f"{printing.path(folder)} can't be written: {error.strerror}") from None
    return written


def _run(run: Mapping[str, Any]) -> str:
    low, high = run["interval"] or (None, None)
    ranked = not run.get("not_ranked")  # only those have an interval that were to rank
    score = f" {printing.score(run['score'], low, high, ranked=ranked)}" if run["score"] is not None else ""
    unranked = "" if ranked else " (not ranked)"
    return f"{run['gpu_type']} {printing.coloured(run['standing'])}{score}{unranked}"
