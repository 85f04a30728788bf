"""`kbslurm logs`: a run's log as its author may see it; without a number, where the daemon's is."""

from __future__ import annotations

import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import As, Json
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.context import configuration, existing_store
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import check_none_in_use
from kbslurm.domain import access, log_parts
from kbslurm.errors import EXIT_OK, Invalid, NotFound
from kbslurm.ports import TICKS

if TYPE_CHECKING:
    from kbslurm.cli.competitor.service import Service
    from kbslurm.store.views import LeaseState, RunView

UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")


def logs(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[RUN]", min=0, help="The run's number, or a submission's with --submission."),
    ] = None,
    of_submission: Annotated[
        bool, typer.Option("--submission", "-s", help="The logs of every run of this submission.")
    ] = False,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Show a run's log by case, without that of hidden cases; without a number, say where the daemon's log is."""
    if number is None:
        if of_submission or as_ is not None:
            raise Invalid("the number is missing", hint="kbslurm history lists your submissions.")
        return _daemons(as_json)
    with service(as_) as found:
        rows = _logs(found, number, of_submission=of_submission)
    if as_json:
        printing.as_json({"runs": rows})
        return EXIT_OK
    for row in rows:
        if len(rows) > 1:
            printing.say(f"==> run {row['run']}, {row['gpu']} <==")
        if row["verdict"] is None:
            printing.say(f"run {row['run']} is {row['state']}; its log comes with its verdict")
        else:
            _say(row)
    return EXIT_OK


def _say(row: dict[str, Any]) -> None:
    """The log, with a heading over what each case wrote if several did."""
    parts = [one for one in row["parts"] if one["log"].strip()]
    if len(parts) < 2:
        printing.say(row["log"].removesuffix("\n") or f"run {row['run']} has written nothing")
        return
    for one in parts:
        printing.say(f"--- {one['title']}{': ' + one['status'] if one['status'] else ''} ---")
        printing.say(one["log"].removesuffix("\n"))


def _logs(found: Service, number: int, *, of_submission: bool) -> list[dict[str, Any]]:
    """Of these runs, what `access.shown_report` leaves of the log."""
    submission = number if of_submission else int(found.why(number, of_submission=False)[0]["submission"])
    view = found.look(submission).view
    found.check_may_read(view)
    runs = [run for run in view.runs if of_submission or run.id == number]
    if not runs:
        raise NotFound(
            "log of run", str(number), hint=f"It doesn't count any more; run: kbslurm logs --submission {submission}"
        )
    return [
        {
            "run": run.id,
            "submission": view.id,
            "gpu": run.gpu,
            "state": run.shown_state,
            "verdict": run.verdict.name if run.verdict else None,
            **_log(run),
        }
        for run in runs
    ]


def _log(run: RunView) -> dict[str, Any]:
    told = access.shown_report(run.verdict.detail if run.verdict else None) or {}
    parts = [
        {"phase": one.phase, "index": one.index, "title": one.title, "status": one.status, "log": one.text}
        for one in log_parts.by_case(told)
    ]
    return {"log": str(told.get("log", "")), "parts": parts}


def _daemons(as_json: bool) -> int:
    """Where the logs on this machine are: a daemon writes to its standard error, whatever that is."""
    check_none_in_use()
    now = datetime.now(UTC)
    with existing_store() as store:
        leases = [] if store is None else [one for one in store.leases.all() if one.expires_at > now]
    rows = [_daemon(one) for one in leases]
    server = configuration().state_dir / "postgres/server.log"
    database = str(server) if server.is_file() else None
    if as_json:
        printing.as_json({"daemons": rows, "database_log": database})
        return EXIT_OK
    for row in rows:
        printing.say(f"the daemon on {row['host']} (process {row['pid']}): {row['where']}")
        if row["command"]:
            printing.say(f"  {row['command']}")
    if not rows:
        printing.say("no daemon runs; kbslurm up logs to its standard error")
    if database:
        printing.say(f"the embedded database: {database}")
    return EXIT_OK


def _daemon(lease: LeaseState) -> dict[str, Any]:
    host, _, rest = str(lease.info.get("host", lease.holder)).partition(":")
    pid = int(rest.partition(":")[0] or 0)
    if lease.name == TICKS:
        return {"host": host, "pid": pid, "where": "kbslurm tick, whose log is its timer's or cron's", "command": None}
    where, command = _where(pid) if host == socket.gethostname() else ("look there", None)
    return {"host": host, "pid": pid, "where": where, "command": command}


def _where(pid: int) -> tuple[str, str | None]:
    """Where this process's standard error goes, and the command that shows it."""
    try:
        target = str(Path(f"/proc/{pid}/fd/2").readlink())
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except PermissionError:
        return "it runs under another account; look there", None
    except OSError:
        return "it doesn't run any more", None
    if target == os.devnull:
        return "its log is thrown away", None
    if target.startswith("/dev/"):
        return f"its log is in the terminal {target}", None
    if target.startswith("/"):
        return f"its log is {target}", f"tail -f {target}"
    units = UNIT.findall(groups)
    if units and target.startswith("socket:"):
        user = "--user " if "/user@" in groups else ""
        return "its log is in the journal", f"journalctl {user}-u {units[-1]} -f"
    return "its log goes to another process, by a pipe", None
