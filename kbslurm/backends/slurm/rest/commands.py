"""Slurm's commands, answered by slurmrestd: the same questions and the same words, so that there is one reader.

Only what kbslurm asks is known here; anything else is an error that says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from kbslurm.backends.slurm.commands import Answer, Commands
from kbslurm.backends.slurm.executor import STATUS_LINE
from kbslurm.backends.slurm.fleet import WIDTHS
from kbslurm.backends.slurm.rest import text
from kbslurm.backends.slurm.rest.connection import Connection, Query, Reply, Unanswered, Unreached
from kbslurm.backends.slurm.rest.job_fields import Untold, fields_of
from kbslurm.backends.slurm.rest.token import TokenSource
from kbslurm.domain.site import Site
from kbslurm.errors import BackendTrouble
from kbslurm.observe.logs import teller

tell = teller("slurm")

UNREACHED = 255  # as ssh's own status: the scheduler was certainly not asked
NO_ANSWER = 124
REQUEST = "request"


REREAD, BATCH = 2, 200
INVALID_JOB, ALREADY_DONE = 2017, 2021


class Complaint(Exception):
    """Slurm's error, in its own words."""


class Gone(Complaint):
    """Slurm doesn't know this job."""


class RestCommands(Commands):
    """A site's scheduler behind slurmrestd."""

    def __init__(
        self,
        site: Site,
        *,
        environ: Mapping[str, str] | None = None,
        heard: Callable[[Answer], None] | None = None,
        before: Callable[[], None] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(site, environ=environ, heard=heard, before=before)
        self._wall = wall
        self._jobs_seen: dict[str, tuple[str, float, Mapping[str, Any]]] = {}  # by ID: state, when it was read, the job
        self.tokens = TokenSource(site.submit, self._environ, wall)
        self.connection = Connection(site.submit, self.tokens, probed=self._probed)

    def run(
        self, tool: str, arguments: Sequence[str], *, timeout_s: float | None = None, told: str | None = None
    ) -> Answer:
        """Ask what this command would. BackendTrouble if no answer comes in time."""
        if self._before is not None:
            self._before()
        limit_s = self.site.slurm.ask_timeout_s if timeout_s is None else timeout_s
        self.count(tool)
        began = time.monotonic()
        try:
            out = self._answered(tool, list(arguments), limit_s)
        except Unreached as why:
            return self._tell(tool, UNREACHED, "", f"error: {why}", began)
        except Unanswered as why:
            self._tell(tool, NO_ANSWER, "", f"error: {why}", began)
            raise BackendTrouble(self.site.name, str(why)) from None
        except (Complaint, Untold) as why:
            return self._tell(tool, 1, "", f"{tool}: error: {why}", began)
        return self._tell(tool, 0, out, "", began)

    def send(self, script: str) -> str:
        """Submit it once: what `sbatch --parsable` would have printed, and its status."""
        limit_s = self.site.slurm.submit_timeout_s
        try:
            return f"{self._submitted(script, limit_s)}\n{STATUS_LINE}0\n"
        except Unreached as why:
            return f"{why}\n{STATUS_LINE}{UNREACHED}\n"
        except Unanswered as why:
            return f"{why}\n" if why.in_time else f"{why}\n{STATUS_LINE}{NO_ANSWER}\n"
        except Untold as why:
            return f"sbatch: error: invalid option: {why}\n{STATUS_LINE}1\n"
        except Complaint as why:
            return f"sbatch: error: Batch job submission failed: {why}\n{STATUS_LINE}1\n"

    def way(self) -> str:
        """The service's address, and the version of its API once both have agreed on it."""
        version = self.connection.version
        return f"slurmrestd at {self.site.submit.url}{f', {version}' if version else ''}"

    def only(self, ids: Sequence[str]) -> list[str]:
        """Just these: without, Slurm would send the whole cluster's jobs at each look."""
        return ["-j", ",".join(ids)] if ids else []

    def lapse_in(self, status: int | None, said: str) -> str:
        """Why slurmrestd certainly wasn't asked, and what to do."""
        return said.strip().removeprefix("error: ") if status == UNREACHED else ""

    def _probed(self, took_s: float) -> None:
        """One request that settles the version: it counts, too."""
        self.count(REQUEST)
        if self._heard is not None:
            self._heard(Answer(tool=REQUEST, status=0, out="", err="", took_s=took_s))

    # --------------------------------------------------------------------------------------------------- by command

    def _answered(self, tool: str, words: list[str], limit_s: float) -> str:
        match tool, words:
            case "squeue", _:
                form = words[words.index("-o") + 1]
                return _lines(text.in_queue(job, form) for job in self._queue(words, limit_s))
            case "sacct", _:
                fields = words[words.index("-o") + 1].split(",")
                return _lines(text.in_accounts(job, fields) for job in self._past(words, limit_s))
            case "scancel", _:
                return self._cancelled([word for word in words if word != "--quiet"], limit_s)
            case "sbatch", ["--parsable", file]:
                return self._submitted(Path(file).read_text(encoding="utf-8"), limit_s)
            case "scontrol", ["show", "job", "--oneliner", handle]:
                (job,) = self._listed(self._ask("GET", f"job/{handle}", limit_s), "jobs")[:1] or [{}]
                return f"JobId={job.get('job_id')} Head= JobName={text.plain(job.get('name'))}\n"
            case "scontrol", ["-o", "show", "partition"]:
                return _lines(map(text.partition_line, self._all("partitions", limit_s)))
            case "scontrol", ["show", "reservation", "--oneliner"]:
                now = self._wall()
                return _lines(text.reservation_line(one, now) for one in self._all("reservations", limit_s))
            case "scontrol", ["show", "config"]:
                return text.settings(self._ask("GET", "ping/", limit_s).data.get("meta"))
            case "sinfo", ["-V"]:
                self._ask("GET", "ping/", limit_s)
                return f"slurm {self.connection.release}\n"
            case "sinfo", _:
                nodes = self._all("nodes", limit_s)
                if "-N" in words:
                    return _lines(text.node_line(node, name, WIDTHS) for node, name in _placed(nodes))
                return _lines(text.gres_line(node, name) for node, name in _placed(nodes))
            case _:
                raise Complaint(f"slurmrestd doesn't offer what `{' '.join([tool, *words[:3]])}` shows")

    def _queue(self, words: list[str], limit_s: float) -> list[Mapping[str, Any]]:
        """Our jobs: those with these IDs, or all. Then Slurm sends the cluster's whole list: it filters by nothing."""
        ids = next((words[at + 1].split(",") for at, word in enumerate(words) if word == "-j"), [])
        if ids:
            return self._looked_up(sorted(set(ids)), limit_s)
        names = [word.partition("=")[2] for word in words if word.startswith("--name=")]
        me = self.connection.user()
        return [
            job
            for job in self._jobs("jobs/", limit_s)
            if (not me or job.get("user_name") in (me, "", None)) and (not names or job.get("name") in names)
        ]

    def _looked_up(self, ids: Sequence[str], limit_s: float) -> list[Mapping[str, Any]]:
        """One request for the states of all; one more for each whose state has changed since, and for the two waiting
        jobs whose reason was read longest ago."""
        states: dict[str, Mapping[str, Any]] = {}
        for start in range(0, len(ids), BATCH):
            query: Query = {"job_id": list(ids[start : start + BATCH])}
            reply = self._ask("GET", "jobs/state/", limit_s, query=query)
            states |= {str(one.get("job_id")): one for one in self._listed(reply, "jobs")}
        shown = {one: text.state(states[one].get("state")) for one in ids if one in states}
        with self._lock:
            known = {one: self._jobs_seen[one] for one in shown if one in self._jobs_seen}
        waiting = [one for one in known if known[one][0] == shown[one] == "PENDING"]
        stale = sorted(waiting, key=lambda one: known[one][1])[:REREAD]
        for one in [name for name in shown if name not in known or known[name][0] != shown[name] or name in stale]:
            began = time.monotonic()
            with suppress(Gone):
                (job,) = self._jobs(f"job/{one}", limit_s)[:1] or [{}]
                known[one] = (text.state(job.get("job_state")), self._wall(), job)
            self._probed(time.monotonic() - began)
        with self._lock:
            self._jobs_seen = known
        return [job for _, _, job in known.values()]

    def _jobs(self, path: str, limit_s: float) -> list[Mapping[str, Any]]:
        return self._listed(self._ask("GET", path, limit_s, query={"flags": "ALL"}), "jobs")

    def _past(self, words: list[str], limit_s: float) -> list[Mapping[str, Any]]:
        query: dict[str, str | list[str]] = {
            "skip_steps": "true",
            "show_duplicates": "true",
            "disable_truncate_usage_time": "true",
        }
        for at, word in enumerate(words):
            if word == "-j":
                query["step"] = words[at + 1].split(",")
            elif word.startswith("--name="):
                query["job_name"] = word.partition("=")[2]
            elif word == "-S":
                query["start_time"] = str(self._since(words[at + 1]))
        if me := self.connection.user():
            query["users"] = me
        return self._listed(self._ask("GET", "jobs/", limit_s, query=query, service="slurmdb"), "jobs")

    def _since(self, word: str) -> int:
        return int(self._wall()) - 60 if word.startswith("now") else int(datetime.fromisoformat(word).timestamp())

    def _cancelled(self, which: list[str], limit_s: float) -> str:
        ids = [word for word in which if word.isdigit()]
        if any(word.startswith("--name=") for word in which):
            ids += [str(job.get("job_id")) for job in self._queue(which, limit_s)]
        for one in ids:
            reply = self._ask("DELETE", f"job/{one}", limit_s)
            for told in self._listed(reply, "status"):
                error = told.get("error") or {}
                if error.get("code") not in (0, INVALID_JOB, ALREADY_DONE):
                    raise Complaint(text.plain(error.get("message") or error.get("string")))
        return ""

    def _submitted(self, script: str, limit_s: float) -> str:
        """The job's ID. Slurm may send one together with errors: then the job is there."""
        reply = self.connection.ask("POST", "job/submit", timeout_s=limit_s, body={"job": fields_of(script)})
        for warning in reply.warnings:
            tell("slurmrestd warned", level="warning", site=self.site.name, why=warning)
        job = text.number(reply.data.get("job_id"))
        if job:
            return str(job)
        if reply.complaint:
            raise Complaint(reply.complaint)
        raise Unanswered("slurmrestd's answer names no job", in_time=True)

    # ---------------------------------------------------------------------------------------------------- requests

    def _ask(
        self, method: str, path: str, limit_s: float, *, query: Query | None = None, service: str = "slurm"
    ) -> Reply:
        reply = self.connection.ask(method, path, timeout_s=limit_s, query=query, service=service)
        if any(number == INVALID_JOB for number, _ in reply.errors):
            raise Gone(reply.complaint)
        if reply.status == 404 and service == "slurmdb" and not reply.errors:
            raise Complaint("this slurmrestd answers no questions about accounting (it runs without slurmdbd)")
        if reply.complaint:
            raise Complaint(reply.complaint)
        return reply

    def _all(self, what: str, limit_s: float) -> list[Mapping[str, Any]]:
        return self._listed(self._ask("GET", f"{what}/", limit_s), what)

    def _listed(self, reply: Reply, key: str) -> list[Mapping[str, Any]]:
        """The list below this key. Without one the answer says nothing: absence from it would prove nothing."""
        found = reply.data.get(key)
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            raise Unanswered(f"slurmrestd's answer has no list of {key}", in_time=True)
        return found


def _placed(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    return [(node, str(name)) for node in nodes for name in node.get("partitions") or ()]


def _lines(found: Any) -> str:
    return "".join(f"{line}\n" for line in found)
