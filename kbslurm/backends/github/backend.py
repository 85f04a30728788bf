"""GitHub Actions as a backend: runs on a private repository's runners, one workflow run per attempt.

    submit   dispatches the workflow; the attempt's name is the run's title, so that a lost answer is found again
    claim    the job's first act makes the reference refs/kbslurm/claim/NAME, which only one ever can (law 2): however
             often an attempt is dispatched, it runs at most once. A cancel makes it first, and the job never starts
    poll     one conditional list of the workflow's runs for all open attempts
    collect  the artifact NAME: report, ending and a profile's files, sealed for us. A GitHub Enterprise Server takes no
             artifacts: there the job stores the same as a commit under refs/kbslurm/result/NAME

What is sent and what comes back is sealed with a key that is the repository's Actions secret and ours: see
runner_program.py. People who can read the repository see names and times. A public repository gets no hidden cases and
nothing that ranks. A new process can find out everything that is remembered here.
"""

from __future__ import annotations

import base64
import io
import json
import math
import time
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from kbslurm.backends.github import repository_files, runner_program
from kbslurm.backends.github.api import Answer, Api
from kbslurm.backends.paths import NAME
from kbslurm.backends.sealed_result import Result, opened
from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen, Sighting
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear
from kbslurm.observe.logs import teller
from kbslurm.ports import JobSpec, LimitReport
from kbslurm_eval.shared.wire import ARTIFACT_CAP

tell = teller("github")

WORKFLOW = "kbslurm-run.yml"
TITLE = "kbslurm "
INPUTS_CAP = 60_000  # GitHub accepts 65535 characters of inputs in total
ZIP_CAP, MEMBERS_CAP = 64 << 20, 16
PER_PAGE = 50
PAGES, NEAR = 20, 3  # how many are listed at most, and at every poll
DELETED_AT_ONCE = 60
LOOK_BACK = timedelta(days=3)  # GitHub itself cancels a queued run after one
MARGIN = timedelta(minutes=10)
KNOWN_S = 600.0
OVERHEAD_MINUTES = 10
RESULTS_KEPT, RESULTS_BYTES = 32, 64 << 20
ASKS_BEFORE_FORCE = 3
LOG_CAP = 4 << 20


def pass_by(_step: str) -> None:
    """A crash point's action outside tests: nothing."""


class GithubBackend:
    """Runs jobs as workflow runs of one repository. A ports.Backend.

    `gpus` maps GPU types to runner labels, `slots` says how many attempts may be open of each. `key` is the 32 bytes
    that the repository has as its secret KBSLURM_RUN_KEY. `min_isolation`: below it the harness refuses to run.
    `ranked`: without it leaderboard runs are refused and nothing hidden is sent, as with public repositories.
    `crash_point` is called with a name between any two steps of submitting: payload, sending, sent.
    """

    def __init__(
        self,
        repository: str,
        gpus: Mapping[str, Sequence[str]],
        slots: Mapping[str, int],
        *,
        tokens: Sequence[str],
        key: bytes,
        eval_dir: Path,
        branch: str = "main",
        api_url: str = "https://api.github.com",
        python: str = "python3",
        min_isolation: int = 2,
        ranked: bool = True,
        name: str = "github",
        crash_point: Callable[[str], None] = pass_by,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.gpus = {gpu: list(labels) for gpu, labels in gpus.items()}
        self.slots = dict(slots)
        self.branch, self.python, self.min_isolation, self.ranked = branch, python, min_isolation, ranked
        self.crash_point = crash_point
        self.api = Api(name, url=api_url, repository=repository, tokens=tokens, monotonic=monotonic)
        self._key = key
        self._eval_dir = eval_dir
        self._harness = runner_program.harness_digest(eval_dir)
        self._monotonic = monotonic
        self._public: tuple[float, bool] | None = None
        self._results: dict[JobName, Result] = {}
        self._begun: dict[int, tuple[datetime | None, str | None]] = {}
        self._asked: dict[JobName, int] = {}
        self._shown: set[JobName] = set()
        self._barren: dict[JobName, tuple[float, float]] = {}

    def capacity(self) -> Mapping[str, int]:
        return self.slots

    def limits(self) -> Sequence[LimitReport]:
        """What is left of GitHub's limits."""
        return self.api.limits()

    def close(self) -> None:
        """Close the connections. Running jobs keep running."""
        self.api.close()

    # ------------------------------------------------------------------------------------------------------ starting

    def submit(self, job: JobSpec) -> Handle:
        """Dispatch the workflow. The handle is the run's number if the server returns it, else the attempt's name."""
        if job.gpu not in self.gpus:
            raise BackendRefused(
                self.name,
                f"there is no {job.gpu} here",
                permanent=True,
                hint=f"This backend serves {', '.join(self.gpus)}.",
            )
        inputs = {
            "name": _checked(job.name),
            "labels": json.dumps(self.gpus[job.gpu]),
            "minutes": str(math.ceil(job.time_limit_s / 60) + OVERHEAD_MINUTES),
        }
        inputs |= self._payload(job, self._manifest(job))
        self.crash_point("sending")
        answer = self.api.act(
            "POST", f"/actions/workflows/{WORKFLOW}/dispatches", {"ref": self.branch, "inputs": inputs}
        )
        self.crash_point("sent")
        if answer.status not in (200, 201, 204):
            raise self._refusal(answer)
        number = answer.data.get("workflow_run_id") if isinstance(answer.data, Mapping) else None
        return Handle(str(number)) if isinstance(number, int) else Handle(job.name)

    def _manifest(self, job: JobSpec) -> str:
        """What to send to the harness: everything, unless others could read it."""
        if not self.is_public() and self.ranked:
            return job.manifest
        told = json.loads(job.manifest)
        if told["mode"] == "leaderboard":
            if self.ranked:
                why, hint = "its repository is public", "Make the repository private."
            else:
                why, hint = "[github] ranked is false", "Set ranked = true, with min_isolation = 2."
            raise BackendRefused(self.name, f"{why}, so nothing from there ranks", permanent=True, hint=hint)
        told["hidden"] = []
        return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def _payload(self, job: JobSpec, manifest: str) -> dict[str, str]:
        """The sealed order: in the inputs, or if it is too large in an unreferenced git object."""
        order = {
            "form": runner_program.FORM,
            "name": job.name,
            "manifest": manifest,
            "key": job.key.hex(),
            "time_limit_s": job.time_limit_s,
            "memory_bytes": job.memory_bytes,
            "python": self.python,
            "harness": self._harness,
            "arguments": ["--min-isolation", str(self.min_isolation)] if self.min_isolation else [],
        }
        sealed = base64.b64encode(
            runner_program.sealed(json.dumps(order).encode(), self._key, job.name, "order")
        ).decode()
        if len(sealed) <= INPUTS_CAP:
            return {"order": sealed}
        self.crash_point("payload")
        try:
            answer = self.api.act("POST", "/git/blobs", {"content": sealed, "encoding": "utf-8"})
        except BackendUnclear as error:
            # Only a blob was created; nothing was started.
            said = error.message.removeprefix(f"{self.name}: ")
            raise BackendRefused(self.name, said, permanent=False, away=True) from None
        if answer.status != 201:
            raise self._refusal(answer)
        return {"blob": str(answer.data["sha"])}

    def is_public(self) -> bool:
        """Whether the repository is public; it must contain this version's harness. Checked again after a while, since
        both can change."""
        now = self._monotonic()
        if self._public is None or self._public[0] < now:
            try:
                answer = self.api.get("")
                tree = self.api.get(f"/git/trees/{self.branch}", recursive="1")
            except BackendTrouble as error:
                said = error.message.removeprefix(f"{self.name}: ")
                raise BackendRefused(self.name, said, permanent=False, away=True, hint=error.hint) from None
            if answer.status != 200 or tree.status != 200:
                raise self._refusal(tree if answer.status == 200 else answer)
            different = repository_files.differences(repository_files.listed(tree.data), self._eval_dir)
            if different and not tree.data.get("truncated"):
                raise BackendRefused(
                    self.name,
                    f"{self.api.repository} doesn't have this version's workflow and harness on {self.branch}",
                    permanent=False,
                    away=True,
                    hint="kbslurm github check lists the differences; kbslurm github install DIR updates them.",
                )
            self._public = (now + KNOWN_S, answer.data.get("private") is not True)
        return self._public[1]

    def _refusal(self, answer: Answer) -> BackendRefused:
        said = f": {answer.said}" if answer.said else ""
        if answer.status == 404:
            return BackendRefused(
                self.name,
                f"{self.api.repository} has no {WORKFLOW} on {self.branch}, or the token may not use it",
                permanent=False,
                away=True,
                hint="Run kbslurm github check to find out.",
            )
        return BackendRefused(
            self.name,
            f"the API answered with status {answer.status}{said}",
            permanent=answer.status == 422,
            away=answer.status != 422,
            hint="Run kbslurm github check to see what is missing.",
        )

    # ------------------------------------------------------------------------------------------------------- looking

    def find(self, name: JobName) -> Sighting:
        runs, complete = self._runs(datetime.now(UTC) - LOOK_BACK)
        if mine := runs.get(_checked(name)):
            return self._sighting(name, mine)
        return self._unlisted(name, complete)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        """One list for all; separate calls for runs that started or ended since, or are older than the list."""
        if not attempts:
            return {}
        # A run without a number can only be found by its title, however far back.
        oldest = min(attempt.opened_at for attempt in attempts)
        numbered = all(attempt.handle is not None and attempt.handle.isdecimal() for attempt in attempts)
        runs, complete = self._runs(oldest - MARGIN, NEAR if numbered else PAGES)
        found: dict[JobName, Sighting] = {}
        for attempt in attempts:
            try:
                found[attempt.name] = self._polled(attempt, runs, complete)
            except BackendTrouble as error:
                found[attempt.name] = Sighting(seen=Seen.UNKNOWN, reason=error.message)
        return found

    def _polled(
        self, attempt: OpenAttempt, runs: Mapping[str, Sequence[Mapping[str, Any]]], complete: bool
    ) -> Sighting:
        mine = runs.get(attempt.name) or self._by_number(attempt)
        if not mine:
            return self._unlisted(attempt.name, complete)
        seen = self._sighting(attempt.name, mine)
        if seen.seen is Seen.ENDED and seen.ending is not Ending.REPORTED and not complete:
            # An older run with this name may be the one that has the claim.
            further, _ = self._runs(attempt.opened_at - MARGIN)
            return self._sighting(attempt.name, further.get(attempt.name) or mine)
        return seen

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        name = attempt.name
        again_at, wait_s = self._barren.get(name, (0.0, 0.5))
        if name not in self._results and self._monotonic() < again_at:
            return None  # there was none, so ask less and less often
        result = self._result(name)
        if isinstance(result, Result) and result.report is not None:
            self._barren.pop(name, None)
            return result.report
        self._barren[name] = (self._monotonic() + wait_s, min(600.0, 2 * wait_s))
        if len(self._barren) > 4 * 1024:
            self._barren.clear()
        return None

    def artifacts(self, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
        result = self._result(attempt.name)
        if not isinstance(result, Result):
            return {}
        return {name: data for name, data in result.artifacts.items() if name in names and len(data) <= ARTIFACT_CAP}

    def excerpt(self, name: JobName, lines: int = 40) -> str:
        """The end of the output of the job's steps, for the operator. It never contains sealed data."""
        runs, _ = self._runs(datetime.now(UTC) - LOOK_BACK)
        for run in runs.get(name, []):
            for job in self._jobs(run):
                text = self.api.bytes_of(f"/actions/jobs/{job.get('id')}/logs", LOG_CAP)
                if text:
                    return "\n".join(text.decode(errors="replace").splitlines()[-lines:])
        return ""

    def _runs(
        self, since: datetime, pages: int | None = None, **only: str
    ) -> tuple[dict[str, list[Mapping[str, Any]]], bool]:
        """The workflow's runs since then, newest first, by attempt; and whether the list is complete."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for page in range(1, (pages or PAGES) + 1):
            answer = self.api.get(f"/actions/workflows/{WORKFLOW}/runs", per_page=PER_PAGE, page=page, **only)
            runs = answer.data.get("workflow_runs") if isinstance(answer.data, Mapping) else None
            if answer.status != 200 or not isinstance(runs, list):
                raise BackendTrouble(
                    self.name,
                    f"its runs can't be listed: the API answered with status {answer.status}",
                    hint="Run kbslurm github check to see what is missing.",
                )
            for run in runs:
                title = str(run.get("display_title") or "")
                if title.startswith(TITLE):
                    found.setdefault(title.removeprefix(TITLE), []).append(run)
            last = _moment(runs[-1].get("created_at")) if runs else None
            if not runs or not answer.more or (last is not None and last < since):
                return found, True
        return found, False

    def _by_number(self, attempt: OpenAttempt) -> list[Mapping[str, Any]]:
        """The run that our dispatch returned, however old."""
        if attempt.handle is None or not attempt.handle.isdecimal():
            return []
        answer = self.api.get(f"/actions/runs/{attempt.handle}")
        return [answer.data] if answer.status == 200 and isinstance(answer.data, Mapping) else []

    def _unlisted(self, name: JobName, complete: bool) -> Sighting:
        """No run with this name was listed. ABSENT only if the list was complete and nothing has the claim either."""
        claimed = self.api.get(f"/git/ref/kbslurm/claim/{name}").status
        if claimed == 404 and self.api.get(f"/git/ref/heads/{self.branch}").status != 200:
            return Sighting(
                seen=Seen.UNKNOWN, reason="the token can't read its references: it gets 404 for all of them"
            )
        if claimed == 200 and self._was_cancelled(name):
            return Sighting(seen=Seen.ENDED, ending=Ending.CANCELLED, reason="cancelled before it started")
        if claimed == 200:
            return Sighting(seen=Seen.UNKNOWN, reason="it has started, but GitHub doesn't list its run")
        if claimed != 404 or not complete:
            return Sighting(seen=Seen.UNKNOWN, reason="GitHub has more runs than were listed")
        return Sighting(seen=Seen.ABSENT)

    def _sighting(self, name: JobName, runs: Sequence[Mapping[str, Any]]) -> Sighting:
        """The outcome of these runs with one name, of which only one ever got the claim."""
        handle = Handle(str(runs[0].get("id")))
        going = [run for run in runs if run.get("status") != "completed"]
        if len(going) < len(runs) or any(run.get("run_attempt", 1) != 1 for run in going):
            # A re-run has no claim any more; the result of its first attempt counts.
            result = self._result(name)
            if isinstance(result, Result):
                return self._ended(handle, name, result)
            if isinstance(result, str):
                return Sighting(seen=Seen.ENDED, handle=handle, ending=Ending.BAD_REPORT, reason=result)
        for run in going:
            if run.get("status") == "in_progress":
                began, node = self._beginning(run)
                return Sighting(seen=Seen.RUNNING, handle=Handle(str(run.get("id"))), node=node, started_at=began)
        if going:
            return Sighting(
                seen=Seen.WAITING,
                handle=handle,
                reason=f"GitHub says {going[0].get('status')}: no runner has picked it up",
            )
        return self._without_result(name, runs)

    def _ended(self, handle: Handle, name: JobName, result: Result) -> Sighting:
        return Sighting(
            seen=Seen.ENDED,
            handle=handle,
            node=result.node or None,
            ending=result.ending,
            exit_code=result.exit_code,
            reason=result.reason,
            started_at=result.started_at,
            ended_at=result.ended_at,
        )

    def _without_result(self, name: JobName, runs: Sequence[Mapping[str, Any]]) -> Sighting:
        """All its runs are over and none delivered a result."""
        concluded = [str(run.get("conclusion")) for run in runs]
        number = next((n for n, one in enumerate(concluded) if one not in ("cancelled", "success", "skipped")), 0)
        if set(concluded) <= {"cancelled"} or self._was_cancelled(name):
            ending, reason = Ending.CANCELLED, "the run was cancelled"
        elif concluded[number] in ("startup_failure", "stale", "action_required"):
            ending, reason = Ending.BOOT_FAILURE, f"no runner picked it up: GitHub says {concluded[number]}"
        else:
            ending, reason = Ending.NO_REPORT, self._why(name, runs[number])
        run = runs[number]
        began, node = self._beginning(run)
        return Sighting(
            seen=Seen.ENDED,
            handle=Handle(str(run.get("id"))),
            node=node,
            ending=ending,
            reason=reason,
            started_at=began,
            ended_at=_moment(run.get("updated_at")),
        )

    def _why(self, name: JobName, run: Mapping[str, Any]) -> str:
        """Which step failed, if GitHub says so. Its output goes to the operator's log, once."""
        if name not in self._shown:
            self._shown = {name} if len(self._shown) > 1024 else self._shown | {name}
            with suppress(BackendTrouble):
                tell("a run delivered no result", level="warning", job=name, printed=self.excerpt(name)[-2_000:])
        for job in self._jobs(run):
            for step in job.get("steps") or ():
                if step.get("conclusion") in ("failure", "timed_out"):
                    return f"its workflow's step {str(step.get('name'))!r} failed on GitHub"
        return f"its workflow run ended ({run.get('conclusion')}) without delivering a result"

    def _beginning(self, run: Mapping[str, Any]) -> tuple[datetime | None, str | None]:
        """When and where the run's job started, read once. Excludes the time waiting for a runner."""
        number = int(run.get("id") or 0)
        if number not in self._begun:
            for job in self._jobs(run):
                if began := _moment(job.get("started_at")):
                    if len(self._begun) > 4 * 1024:
                        self._begun.clear()
                    self._begun[number] = (began, str(job.get("runner_name") or "") or None)
        return self._begun.get(number, (None, None))

    def _jobs(self, run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        try:
            answer = self.api.get(f"/actions/runs/{run.get('id')}/jobs")
        except BackendTrouble:
            return []
        jobs = answer.data.get("jobs") if isinstance(answer.data, Mapping) else None
        return jobs if answer.status == 200 and isinstance(jobs, list) else []

    def _was_cancelled(self, name: JobName) -> bool:
        return self.api.get(f"/git/ref/kbslurm/cancelled/{name}").status == 200

    # ------------------------------------------------------------------------------------------- what was handed over

    def _result(self, name: JobName) -> Result | str | None:
        """The job's result; a sentence if it isn't valid; None if there is none yet."""
        if name in self._results:
            return self._results[name]
        if runner_program.is_enterprise(self.api.url):
            return self._result_of_reference(name)
        answer = self.api.get("/actions/artifacts", name=_checked(name), per_page=10)
        listed = answer.data.get("artifacts") if isinstance(answer.data, Mapping) else None
        if answer.status != 200 or not isinstance(listed, list):
            raise BackendTrouble(
                self.name,
                f"its results can't be listed: the API answered with status {answer.status}",
                hint="Run kbslurm github check to see what is missing.",
            )
        why: str | None = None
        for artifact in listed:
            if artifact.get("name") != name or artifact.get("expired"):
                continue
            if int(artifact.get("size_in_bytes") or 0) > ZIP_CAP:
                why = f"its result has {artifact.get('size_in_bytes')} bytes"
                continue
            packed = self.api.bytes_of(f"/actions/artifacts/{artifact.get('id')}/zip", ZIP_CAP)
            if packed is None:
                continue
            found = self._read(name, partial(_unpacked, packed))
            if isinstance(found, Result):
                return found
            why = found
        return why

    def _result_of_reference(self, name: JobName) -> Result | str | None:
        """The same of what a job on an Enterprise Server stored: a commit with one file."""
        answer = self.api.get(f"/git/ref/kbslurm/result/{_checked(name)}")
        if answer.status == 404 and self.api.get(f"/git/ref/heads/{self.branch}").status == 200:
            return None
        tree = self.api.get(f"/git/trees/{answer.data['object']['sha']}") if answer.status == 200 else answer
        if tree.status != 200:
            raise BackendTrouble(
                self.name,
                f"its result can't be read: the API answered with status {tree.status}",
                hint="Run kbslurm github check to see what is missing.",
            )
        listed = tree.data.get("tree") if isinstance(tree.data, Mapping) else None
        file = next((one for one in listed or () if one.get("path") == "result"), None)
        if file is None:
            return "its result can't be opened (there is no file)"
        if int(file.get("size") or 0) > runner_program.OBJECT_CAP:
            return f"its result has {file.get('size')} bytes"
        blob = self.api.get(f"/git/blobs/{file.get('sha')}")
        if blob.status != 200:
            raise BackendTrouble(self.name, f"its result can't be read: the API answered with status {blob.status}")
        return self._read(name, lambda: base64.b64decode(blob.data["content"]))

    def _read(self, name: JobName, unpack: Callable[[], bytes]) -> Result | str:
        """The sealed result, opened and remembered; a sentence if it isn't valid."""
        try:
            found = opened(unpack(), self._key, name)
        except runner_program.OrderFailed as error:
            return f"its result can't be opened ({error})"
        except Exception as error:  # noqa: BLE001 - whatever an archive can be made to raise, it is this one's alone
            return f"its result can't be opened ({type(error).__name__})"
        if found.report is None and found.log:
            tell("ended without a report", level="warning", job=name, node=found.node, log=found.log[-2_000:])
        self._remember(name, found)
        return found

    def _remember(self, name: JobName, result: Result) -> None:
        """Cache the last few, for reading the rest of them; this one however large it is."""
        self._results[name] = result
        size = sum(one.size for one in self._results.values())
        while len(self._results) > 1 and (len(self._results) > RESULTS_KEPT or size > RESULTS_BYTES):
            size -= self._results.pop(next(iter(self._results))).size

    # -------------------------------------------------------------------------------------------------------- ending

    def cancel(self, attempt: OpenAttempt) -> None:
        """Set the cancel mark and take the claim, so that no job can start, then cancel a running one."""
        name = _checked(attempt.name)
        runs, complete = self._runs(min(attempt.opened_at, datetime.now(UTC)) - MARGIN)
        mine = runs.get(name) or self._by_number(attempt)
        going = [run for run in mine if run.get("status") != "completed"]
        if mine and complete and not going:
            return
        head = self._head()
        for folder in ("cancelled", "claim"):
            answer = self.api.act("POST", "/git/refs", {"ref": f"refs/kbslurm/{folder}/{name}", "sha": head})
            if answer.status != 201 and not (answer.status == 422 and "already exists" in answer.said):
                raise self._refusal(answer)
        self._asked[attempt.name] = self._asked.get(attempt.name, 0) + 1
        how = "force-cancel" if self._asked[attempt.name] > ASKS_BEFORE_FORCE else "cancel"
        for run in going:
            answer = self.api.act("POST", f"/actions/runs/{run.get('id')}/{how}")
            if answer.status not in (202, 409):  # 409: it has ended already
                raise BackendRefused(
                    self.name,
                    f"the run can't be cancelled: the API answered with status {answer.status}",
                    permanent=False,
                )

    def prune(self, before: datetime, *, keep: Collection[JobName]) -> int:
        """Remove marks and claims of attempts whose runs are older than this, some at a time; returns of how many
        attempts. `keep`: attempts that are still open in the database."""
        answer = self.api.get("/git/matching-refs/kbslurm/")
        if answer.status != 200 or not isinstance(answer.data, list) or not answer.data:
            return 0
        old, _ = self._runs(before - timedelta(days=30), created=f"<{before.strftime('%Y-%m-%dT%H:%M:%SZ')}")
        gone: set[str] = set()
        for ref in answer.data:
            path = str(ref.get("ref"))
            name = path.rpartition("/")[2]
            if name not in old or JobName(name) in keep or (len(gone) >= DELETED_AT_ONCE and name not in gone):
                continue
            if self.api.act("DELETE", f"/git/{path}").status in (204, 422):
                gone.add(name)
        return len(gone)

    def _head(self) -> str:
        """Any commit that a reference can point to."""
        answer = self.api.get(f"/git/ref/heads/{self.branch}")
        if answer.status != 200:
            raise self._refusal(answer)
        return str(answer.data["object"]["sha"])


def _checked(name: JobName) -> str:
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} isn't a valid job name")
    return name


def _unpacked(packed: bytes) -> bytes:
    """The file in an artifact's archive: one regular member, checked for size before unpacking."""
    if packed.count(b"PK\1\2") > MEMBERS_CAP:  # all would be listed before any is checked
        raise ValueError("it has too many members")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        member = archive.getinfo("result")
        if member.file_size > ZIP_CAP:
            raise ValueError(f"it has {member.file_size} bytes")
        with archive.open(member) as file:
            return file.read(ZIP_CAP + 1)


def _moment(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
