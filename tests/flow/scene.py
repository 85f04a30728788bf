"""A service with a page of every kind in it: boards in every state, hostile words wherever somebody may choose them,
names that are long, empty of Latin letters, or read from right to left. Always the same, at a fixed moment."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg

from kbslurm.api.host_lookup import at_work
from kbslurm.api.sessions import SESSION_FOR
from kbslurm.domain.scripts import checked_script
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.problems import loading
from kbslurm_eval.shared import wire
from tests.bench.api import FILL
from tests.flow.chromium import Chromium
from tests.flow.gallery import judged, played
from tests.flow.puppet import Puppet, sealed_report
from tests.fuzz.values import XSS
from tests.fuzz.world import World
from tests.popcorn.served_api import GOOD, TRANSPOSE, ServedApi

# What somebody might call themselves, or a file, or say to others: were it markup, it would be seen and heard.
HOSTILE = f"\"'></pre></textarea><img class=kb-fuzz src=x onerror=alert(1)><script>alert(2)</script>{XSS}"
LONG, RTL = "W" * 64, "محمد الخوارزمي"
THOUSANDS = 10_000
PATIENCE_S = 60.0
MARKDOWN = f"""# Transpose

An image of $n \\times m$ pixels, $\\sum_i x_i$. {HOSTILE}

| size | bytes |
|---|---|
| [small](javascript:alert(3)) | `1` |

```python
def custom_kernel(data):
    return data
```
"""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Somebody at a page; nobody in particular without a name."""

    path: str
    by: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.by or 'nobody'})"


@dataclass
class Scene:
    """Call `fill` once."""

    api: ServedApi
    folder: Path
    world: World = field(init=False)
    numbers: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)

    def fill(self, *, thousands: int = THOUSANDS) -> None:
        self.world = World(self.api, self.folder)
        self.world.settle()
        self.world.tend()
        self.numbers |= self.world.numbers
        self._boards()
        self._submissions()
        self._questions()
        self._scripts()
        self._thousands(thousands)
        self._scanned()
        store, now = self.api.store, self.api.now
        self.codes["join"] = self._invitation()
        for name in ("ada", "eve", "grace", LONG):
            person = store.people.ensure(name)
            self.sessions[name] = store.tokens.issue(person.id, kind="web", expires_at=now + SESSION_FOR, now=now)

    def sign_in(self, chromium: Chromium, by: str) -> None:
        """The browser is theirs, or nobody's, from now on. It has to be at one of the service's pages."""
        chromium.call("DELETE", "/cookie")
        if by:
            chromium.sign_in(self.sessions[by])

    @property
    def visits(self) -> Mapping[str, Sequence[Visit]]:
        """Who looks at what, by the page's route. A page of a kind that isn't here fails a test."""
        long_board = f"/board/{'b' * 64}/{'G' * 64}"
        of = self.numbers
        return {
            "/": [Visit(path="/"), Visit(path="/", by="grace")],
            "/board/{leaderboard}": [Visit(path="/board/transpose")],
            "/board/{leaderboard}/{gpu}": [
                Visit(path="/board/transpose/H100"),
                Visit(path="/board/transpose/A100"),
                Visit(path="/board/one/H100", by="eve"),
                Visit(path="/board/ended/H100"),
                Visit(path="/board/frozen/H100"),
                Visit(path="/board/hidden/H100", by="ada"),
                Visit(path="/board/nicknames/H100", by="ada"),
                Visit(path="/board/vault/H100", by="ada"),
                Visit(path="/board/thousands/H100"),
                Visit(path="/board/thousands/H100?from=9900"),
                Visit(path="/board/transpose/H100", by="ada"),
                Visit(path="/board/transpose/H100?q=a&sort=name"),
                Visit(path="/board/transpose/H100?q=nobody-is-called-that"),
                Visit(path=long_board, by=LONG),
            ],
            "/board/{leaderboard}/{gpu}/hall": [
                Visit(path="/board/transpose/H100/hall"),
                Visit(path="/board/frozen/H100/hall"),
                Visit(path="/board/hidden/H100/hall", by="ada"),
                Visit(path="/board/thousands/H100/hall"),
            ],
            "/board/{leaderboard}/{gpu}/code": [Visit(path="/board/ended/H100/code")],
            "/board/{leaderboard}/{gpu}/code/{submission_id}": [
                Visit(path=f"/board/ended/H100/code/{of['published']}")
            ],
            "/embed/board/{leaderboard}/{gpu}": [
                Visit(path="/embed/board/transpose/H100"),
                Visit(path="/embed/board/transpose/H100?theme=dark"),
                Visit(path=f"/embed{long_board}"),
            ],
            "/problem/{leaderboard}": [
                Visit(path="/problem/transpose"),
                Visit(path="/problem/transpose", by="ada"),
                Visit(path="/problem/ended", by="ada"),
                Visit(path="/problem/nicknames", by="ada"),
                Visit(path=f"/problem/{'b' * 64}", by=LONG),
            ],
            "/problem/{leaderboard}/submit": [
                Visit(path="/problem/transpose/submit", by="ada"),
                Visit(path=f"/problem/transpose/submit?from={of['wrong']}", by="ada"),
                Visit(path="/problem/ended/submit", by="ada"),
            ],
            "/person/{whose}": [Visit(path="/person/ada"), Visit(path="/person/ada", by="grace")],
            "/compare": [
                Visit(path="/compare"),
                Visit(path="/compare", by="ada"),
                Visit(path=f"/compare?a={of['judged']}&b={of['wrong']}", by="ada"),
                Visit(path="/compare?board=transpose&gpu=H100&other=A100"),
            ],
            "/s/{submission_id}/diff/{other_id}": [Visit(path=f"/s/{of['judged']}/diff/{of['wrong']}", by="ada")],
            "/me": [Visit(path="/me", by="ada"), Visit(path="/me", by="grace"), Visit(path="/me", by=LONG)],
            "/s/{submission_id}": [
                *(Visit(path=f"/s/{of[name]}", by="ada") for name in ("judged", "profiled", "waiting", "wrong")),
                Visit(path=f"/s/{of['long']}", by=LONG),
            ],
            "/questions": [
                Visit(path="/questions", by="ada"),
                Visit(path=f"/questions?submission={of['judged']}", by="ada"),
            ],
            "/login": [Visit(path="/login"), Visit(path=f"/login?next=/{'x' * 300}")],
            "/join/{code}": [Visit(path=f"/join/{self.codes['join']}")],
            "/design": [Visit(path="/design")],
            "/staff": [Visit(path="/staff", by="grace")],
            "/staff/boards": [Visit(path="/staff/boards", by="grace")],
            "/staff/people": [
                Visit(path="/staff/people", by="grace"),
                Visit(path="/staff/people?q=nobody-is-called-that", by="grace"),
            ],
            "/staff/people/{person_id}": [
                Visit(path=f"/staff/people/{self.world.people['ada']}", by="grace"),
                Visit(path=f"/staff/people/{self.world.people['grace']}", by="grace"),
            ],
            "/staff/problems": [Visit(path="/staff/problems", by="grace")],
            "/staff/triage": [Visit(path="/staff/triage", by="grace")],
            "/staff/board/{leaderboard}/triage": [
                Visit(path="/staff/board/ended/triage", by="grace"),
                Visit(path="/staff/board/vault/triage", by="grace"),
            ],
            "/staff/submissions/{submission_id}/triage": [
                *(Visit(path=f"/staff/submissions/{of[name]}/triage", by="grace") for name in ("flagged", "published"))
            ],
            "/staff/run": [
                Visit(path="/staff/run", by="grace"),
                Visit(path=f"/staff/run?again={of['script']}", by="grace"),
                Visit(path="/staff/run?whose=mine", by="grace"),
            ],
            "/staff/run/{script}": [
                *(Visit(path=f"/staff/run/{of[name]}", by="grace") for name in ("script", "open script"))
            ],
            "/staff/board/{leaderboard}/shadows": [Visit(path="/staff/board/transpose/shadows", by="grace")],
            "/staff/places": [Visit(path="/staff/places", by="grace")],
            "/staff/audit": [
                Visit(path="/staff/audit", by="grace"),
                Visit(path="/staff/audit?by=grace", by="grace"),
            ],
            "/staff/board/{leaderboard}/rejudge": [Visit(path="/staff/board/transpose/rejudge", by="grace")],
            "/staff/board/{leaderboard}/finals": [Visit(path="/staff/board/transpose/finals", by="grace")],
            "/staff/board/{leaderboard}/entry": [Visit(path="/staff/board/transpose/entry", by="grace")],
            "/staff/board/{leaderboard}/reveal": [
                Visit(path="/staff/board/frozen/reveal?gpu=H100", by="grace"),
                Visit(path="/staff/board/frozen/reveal?gpu=H100&step=1", by="grace"),
            ],
            "/staff/questions": [Visit(path="/staff/questions", by="grace")],
            "/staff/courses": [Visit(path="/staff/courses", by="grace")],
            "/staff/courses/{course}": [Visit(path="/staff/courses/gpu-2026", by="grace")],
            "/staff/boards/new": [Visit(path="/staff/boards/new", by="grace")],
            "/staff/board/{leaderboard}": [
                *(Visit(path=f"/staff/board/{name}", by="grace") for name in ("transpose", "ended", "hidden", "vault")),
            ],
            "/staff/board/{leaderboard}/submissions": [
                Visit(path="/staff/board/transpose/submissions", by="grace"),
                Visit(path="/staff/board/transpose/submissions?verdict=memory", by="grace"),
            ],
            "/staff/board/{leaderboard}/worklog": [Visit(path="/staff/board/transpose/worklog?person=ada", by="grace")],
            "/staff/submissions/{submission_id}": [Visit(path=f"/staff/submissions/{of['wrong']}", by="grace")],
            "errors": [
                Visit(path="/nowhere"),
                Visit(path=f"/board/{'x' * 64}/H100"),
                Visit(path="/staff", by="eve"),
                Visit(path=f"/s/{of['judged']}", by="eve"),
            ],
        }

    def _boards(self) -> None:
        store, now = self.api.store, self.api.now
        problem = dataclasses.replace(loading.load(TRANSPOSE), description=MARKDOWN, hidden=())
        long_case = {**problem.tests[0], "kind": HOSTILE}
        problem = dataclasses.replace(problem, tests=(*problem.tests, long_case))
        for name in ("one", "ended", "frozen", "hidden", "nicknames", "thousands"):
            store.boards.add(name, problem, gpus=["H100"], confirm=False, now=now)
        store.boards.add("b" * 64, problem, gpus=["G" * 64], confirm=False, now=now)
        store.boards.edit("transpose", by="grace", description=MARKDOWN, now=now)
        store.boards.edit("hidden", by="grace", standings="hidden", now=now)
        store.boards.edit("nicknames", by="grace", names="nicknames", now=now)

    def _submissions(self) -> None:
        store, now = self.api.store, self.api.now
        start = now - timedelta(days=3)
        store.publishing.set_rule(store.boards.get("ended").id, "deadline", HOSTILE, by="grace", now=start)
        played(store, start)
        for board in ("ended", "frozen", "hidden", "nicknames"):
            for n, name in enumerate(("ada", RTL, HOSTILE[:64], "grace")):
                number = judged(store, name, start + timedelta(hours=n), 2e-3 * 1.1**n, board=board)
                if board == "ended":
                    self.numbers.setdefault("published", number)
        flagged = judged(store, "eve", start, 1e-2, board="ended", source=f"a = 1  # FLAG {HOSTILE}\n" * 3)
        self.numbers["flagged"] = flagged
        judged(store, "eve", start, 1e-3, board="one", file_name=f"{HOSTILE[:60].replace('/', '')}.py")
        case = wire.TestResult(phase="test", index=0, spec="rows: 4", status="fail", message=HOSTILE)
        self.numbers["wrong"] = judged(
            store,
            "ada",
            start,
            None,
            verdict="wrong",
            tests=[case],
            log=HOSTILE + "L" * 3000,
            file_name="k" * 60 + ".py",
        )
        long_one = accept(
            store.intake, store.people.ensure(LONG).id, "b" * 64, "f" * 200 + ".py", GOOD, "test", ["G" * 64], now
        )
        self.numbers["long"] = long_one.submission_id
        store.boards.set_deadline("ended", now - timedelta(hours=1), zone="UTC", by="grace", now=now)
        store.times.freeze("frozen", now - timedelta(hours=1), by="grace", now=now)
        store.nicknames.choose(store.boards.get("nicknames"), store.people.ensure("ada"), "swift fox", now=now)

    def _questions(self) -> None:
        store, now = self.api.store, self.api.now
        for n, (board, to_all) in enumerate((("transpose", True), ("ended", False))):
            at = now + timedelta(hours=n - 2)
            asked = store.questions.ask(self.world.people["ada"], f"Why? {HOSTILE}", board=board, now=at)
            store.questions.answer(asked.id, f"So: {HOSTILE}", to_all=to_all, again=False, by="grace", now=at)

    def _scripts(self) -> None:
        """One that has ended and one that is being launched, on a GPU type of their own: nothing else is claimed."""
        store, now, grace = self.api.store, self.api.now, self.world.people["grace"]
        source = checked_script(f"{'s' * 60}.py", f"# {HOSTILE}\n".encode())
        slots = free_slots({"puppet": Puppet(slots={"GH200": 2}).capacity()}, [])
        for name in ("script", "open script"):
            self.numbers[name] = store.scripts.order(
                grace, source, "GH200", 60, 600, place=None, by_staff=True, by="grace", now=now
            )
            attempt = claim(store.queue, slots, now)
            assert attempt is not None
            if name == "script":
                host, work = {"script": {"exit_status": 0}}, store.attempts.work(attempt.id)
                score(store, attempt, sealed_report(work, log=HOSTILE + "L" * 3000, host=host), now)

    def _scanned(self) -> None:
        """All that ranks on the board with flags, where there is a scanner."""
        work, until = at_work(self.api.context, "grace", None), time.monotonic() + PATIENCE_S
        while any(row["state"] == "waiting" for row in work.triage(self.api.context.scans, "ended", begin=9, limit=9)):
            assert time.monotonic() < until
            time.sleep(0.05)

    def _thousands(self, people: int) -> None:
        board = self.api.store.boards.get("thousands")
        told = {
            "now": self.api.now - timedelta(days=1), "people": people, "runs": people, "board": board.id, "gpu": "H100",
            "version": board.problem_version_id,
        }  # fmt: skip
        with psycopg.connect(self.api.store.url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(FILL, told)

    def _invitation(self) -> str:
        token = self.api.store.tokens.issue(self.world.people["grace"], now=self.api.now)
        address = f"{self.api.url}/admin/courses/gpu-2026/invitations"
        made = httpx.post(address, json={}, headers={"Authorization": f"Bearer {token}"}, timeout=60).json()
        return str(made["invitations"][0]["code"])
