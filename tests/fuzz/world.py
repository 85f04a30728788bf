"""The service that is fuzzed: people, boards and submissions with planted secrets, and what keeps them as they were."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from kbslurm.api.sessions import SESSION_FOR
from kbslurm.domain import roster
from kbslurm.domain.access import Role
from kbslurm.domain.run import PersonId
from kbslurm.errors import NotFound
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.problems import loading
from kbslurm_eval.shared import wire
from kbslurm_eval.shared.wire import Mode
from tests.flow.puppet import Puppet, sealed_report
from tests.fuzz import values
from tests.fuzz.answers import Secret
from tests.fuzz.requests import GOOD
from tests.popcorn.served_api import ADMIN, GPUS, TRANSPOSE, ServedApi

BOT = "the-bots-own-token"
ROLES: dict[str, Role] = {
    "ada": "participant",
    "eve": "participant",
    "mallory": "participant",
    "hal": "staff",
    "grace": "staff",
}
BANNED = ("mallory", "hal")
SESSIONS = ("ada", "eve", "grace", "mallory")
BOARDS = ("transpose", "open", "vault")
SOURCE, HIDDEN, LOG, VAULT, REFERENCE, FILE, ADDRESS, QUESTION = (
    f"planted-{word}-4f1b"
    for word in ("source", "hidden-case", "secret-log", "private-board", "reference", "artifact", "address", "question")
)
ROSTER = f"name,email,student id,section,team\nEmmy Noether,{ADDRESS}@example.edu,1882,A,Engine\n"
ADAS = frozenset({"ada", "ada's browser"})
CLEAN = """
UPDATE leaderboard SET closed_at = NULL, deadline_at = NULL, zone = 'UTC', course = NULL, teams = false,
    late_until = NULL, frozen_at = NULL, gpus = '{H100,A100}',
    visibility = CASE WHEN name = 'vault' THEN 'closed' ELSE 'public' END
    WHERE deleted_at IS NULL;
UPDATE leaderboard SET deleted_at = now()
    WHERE deleted_at IS NULL AND name <> ALL (ARRAY['transpose', 'open', 'vault']);
DELETE FROM board_role;
DELETE FROM roster WHERE course <> 'gpu-2026';
DELETE FROM rate_limit;
DELETE FROM quota;
DELETE FROM gpu_budget_use;
DELETE FROM gpu_budget;
"""


@dataclass
class World:
    """The served API with everybody who sends requests to it. `tend` before each batch puts back what the one before
    changed, and gives everybody new tokens."""

    api: ServedApi
    folder: Path
    people: dict[str, PersonId] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    question: int = 0

    def settle(self) -> None:
        """Make everybody and everything."""
        store = self.api.store
        for name, role in ROLES.items():
            self.people[name] = store.people.add(name, role, now=self.api.now).id
        store.people.add(f"k{values.XSS}", now=self.api.now)
        store.people.link_account(self.people["eve"], "discord", "8138")
        store.people.link_account(self.people["grace"], "discord", "8139")
        rows = roster.read(ROSTER.encode()).rows
        store.roster.take("gpu-2026", rows, remove=False, issuer="", by="fuzz", now=self.api.now)
        shutil.copytree(TRANSPOSE, self.folder / "problems" / "problems" / "transpose")
        (self.folder / "problems" / "problems" / "a.yaml").write_text(
            "name: a\ndeadline: 2027-01-01\nproblems:\n  - {directory: transpose, name: transpose, gpus: [H100]}\n"
        )
        for words in (
            ["init", "-q", "-b", "main"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
        ):
            subprocess.run(["git", *words], cwd=self.folder / "problems", check=True)

    def tend(self) -> dict[str, str]:
        """Put everything back; the secrets that requests name."""
        store, now = self.api.store, self.api.now
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute(CLEAN.encode())
            for name, role in ROLES.items():
                connection.execute(
                    "UPDATE person SET role = %s, name = %s, banned_at = NULL WHERE id = %s",
                    (role, name, self.people[name]),
                )
            for (number,) in connection.execute(
                "SELECT DISTINCT submission_id FROM run WHERE ended_at IS NULL ORDER BY 1 DESC OFFSET 20"
            ).fetchall():
                store.submissions.cancel(number, None, now)
        for name in BANNED:
            store.people.ban(self.people[name], values.XSS, by="fuzz", now=now)
        if not store.settings.accepts_jobs():
            store.settings.set_accepts_jobs(True, by="fuzz", now=now)
        self._boards()
        self._submissions()
        self._question()
        return {**self._tokens(), **{name: str(number) for name, number in self.numbers.items()}}

    def secrets(self, known: dict[str, str]) -> list[Secret]:
        """What has to stay with whoever may see it."""
        names = [*ROLES, *(f"{name} session" for name in SESSIONS), "admin", "bot", "revoked session"]
        tokens = [Secret(what=f"the secret {name}", text=known[name], by_hosts=False) for name in names]
        return [
            *tokens,
            Secret(what="ada's source", text=SOURCE, readers=ADAS),
            Secret(what="a profile's file", text=FILE, readers=ADAS),
            Secret(what="a private board", text=VAULT, readers=ADAS),
            Secret(what="what somebody asked", text=QUESTION, readers=ADAS),
            Secret(what="an invitation", text=known["invite"]),
            Secret(what="a hidden case", text=HIDDEN),
            Secret(what="the hidden cases' log", text=LOG),
            Secret(what="the reference", text=REFERENCE),
            Secret(what="what a roster says of somebody", text=ADDRESS),
            Secret(
                what="the database's address",
                text=self.api.store.url.partition("?")[0].rpartition("/")[0],
                by_hosts=False,
            ),
        ]

    def _tokens(self) -> dict[str, str]:
        store, now = self.api.store, self.api.now
        found = {name: store.tokens.issue(who, device=values.XSS, now=now) for name, who in self.people.items()}
        for name in SESSIONS:
            found[f"{name} session"] = store.tokens.issue(
                self.people[name], kind="web", expires_at=now + SESSION_FOR, now=now
            )
            key, told = store.settings.secret("pages"), f"csrf:{found[f'{name} session']}"
            found[f"{name} csrf"] = hmac.new(key, told.encode(), hashlib.sha256).hexdigest()
        found["revoked session"] = store.tokens.issue(self.people["ada"], kind="web", now=now)
        store.tokens.revoke_secret(found["revoked session"], now=now)
        for name in ("pending", "unlinked"):  # a host or a form may link the one, nobody names the other
            found[name] = store.tokens.issue(None, kind="pending", expires_at=now + SESSION_FOR, now=now)
        found["invite"] = store.invites.make(["open"], 1, by="fuzz", now=now)[1][0]
        places = {"problems": str(self.folder / "problems"), "transpose": str(TRANSPOSE)}
        return {**found, **places, "admin": ADMIN, "bot": BOT, "host": self.api.url.partition("://")[2]}

    def _boards(self) -> None:
        store, now = self.api.store, self.api.now
        for name in BOARDS:
            if store.boards.find(name, counted=False) is None:
                plain = loading.load(TRANSPOSE)
                reference = plain.files[plain.reference] + f"\n# {REFERENCE}\n"
                problem = dataclasses.replace(
                    plain,
                    description=f"{VAULT if name == 'vault' else 'a board'} {values.XSS}",
                    files={**plain.files, plain.reference: reference},
                    hidden=({**plain.tests[0], "seed": 4141},),
                    templates={"Python": f"# {VAULT if name == 'vault' else 'a template'}\n"},
                )
                visibility = "closed" if name == "vault" else "public"
                store.boards.add(name, problem, gpus=GPUS, confirm=False, visibility=visibility, now=now)  # type: ignore[arg-type]
                if name == "vault":
                    (code,) = store.invites.make(["vault"], 1, by="fuzz", now=now)[1]
                    store.invites.claim(code, self.people["ada"], now=now)

    def _submissions(self) -> None:
        wanted: dict[str, tuple[str, str, Mode, bool]] = {
            "judged": ("ada", "transpose", "leaderboard", True),
            "profiled": ("ada", "transpose", "profile", True),
            "private": ("ada", "vault", "leaderboard", True),
            "waiting": ("ada", "open", "test", False),
            "eves": ("eve", "transpose", "leaderboard", True),
        }
        for name, (who, board, mode, is_judged) in wanted.items():
            if name not in self.numbers or not self._stands(self.numbers[name], still_open=not is_judged):
                self.numbers[name] = self._submitted(who, board, mode, is_judged)

    def _question(self) -> None:
        """An appeal of ada's on her private board, open whatever was done to the last one."""
        store, now = self.api.store, self.api.now
        if self.question:
            with psycopg.connect(store.url, autocommit=True) as connection:
                connection.execute(
                    "UPDATE question SET state = 'closed', to_all = false, asked_at = asked_at - interval '1 day'"
                )
        asked = store.questions.ask(
            self.people["ada"], f"{QUESTION} {values.XSS}", submission=self.numbers["private"], appeal=True, now=now
        )
        self.question = asked.id

    def _stands(self, number: int, *, still_open: bool) -> bool:
        try:
            view = self.api.store.submissions.get(number)  # type: ignore[arg-type]
        except NotFound:
            return False
        return view.removed_at is None and (not still_open or not view.is_done)

    def _submitted(self, who: str, board: str, mode: Mode, is_judged: bool) -> int:
        store, now = self.api.store, self.api.now
        source = GOOD + (f"# {SOURCE}\n" if who == "ada" else "# eve's\n").encode()
        if is_judged:  # so that the next to be claimed is this one
            with psycopg.connect(store.url, autocommit=True) as connection:
                for (number,) in connection.execute("SELECT submission_id FROM run WHERE ended_at IS NULL").fetchall():
                    store.submissions.cancel(number, None, now)
        receipt = accept(
            store.intake, self.people[who], board, f"k{values.XSS.replace(' ', '')}.py", source, mode, ["H100"], now
        )
        if is_judged:
            puppet = Puppet(slots={"H100": 9})
            attempt = claim(store.queue, free_slots({"puppet": puppet.capacity()}, store.attempts.open()), now)
            assert attempt is not None and attempt.run_id == receipt.run_ids[0]
            case = wire.TestResult(phase="hidden", index=0, spec=HIDDEN, status="pass", message=HIDDEN)
            shown = wire.TestResult(phase="test", index=0, spec=values.XSS, status="pass", message=values.XSS)
            told: dict[str, list[wire.TestResult]] = {"tests": [shown, case]} if mode == "leaderboard" else {}
            score(
                store,
                attempt,
                sealed_report(store.attempts.work(attempt.id), secret_log=LOG, log=values.XSS, **told),
                now,
            )
            with psycopg.connect(store.url, autocommit=True) as connection:
                connection.execute(
                    "INSERT INTO artifact (attempt_id, name, data, at) VALUES (%s, 'functions.json', %s, %s)",
                    (attempt.id, (FILE if who == "ada" else "{}").encode(), now),
                )
        return receipt.submission_id
