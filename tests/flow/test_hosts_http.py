"""Hosts' commands over HTTP: the same answers, the same lines in the audit log, and never a database by the way."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

from kbslurm import wiring
from kbslurm.cli.commands import COMMANDS
from kbslurm.config import shared_folders
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine, Said
from tests.flow.test_audit import leaves, repository
from tests.flow.test_cli_http import judged
from tests.popcorn.served_api import GOOD, TRANSPOSE, served

ONE_FILE = shared_folders.path("examples") / "one_file" / "running_sum.py"

# Commands about this machine: its files and processes, or the service that runs here.
HERE = {
    *("api", "bot check", "bot run", "config show", "config schema", "db upgrade", "db check", "db downgrade", "demo"),
    *("doctor", "github check", "github install", "image build", "image pull", "image push", "image list"),
    "image verify",
    *(
        "modal check",
        "modal deploy",
        "ray check",
        "problem import",
        "problem verify",
        "site init",
        "site check",
        "site list",
    ),
    *("place show", "place check", "place init slurm", "place init local", "place init github", "place init modal"),
    *("place init ray", "ray pool"),
    *("site render", "site schema", "site show", "try", "tick", "up"),
    *("archive verify", "context list", "context use", "context show", "context remove"),
}
# Commands of whoever takes part; test_cli_http, test_logs and test_own_places run them both ways.
COMPETITORS = {
    *("ask", "board announcements", "board list", "board show", "cancel", "code", "diff", "history", "login", "logout"),
    *("join", "logs", "mcp", "nickname", "problem pull", "profile", "submission diff", "submit", "watch", "whoami"),
    "why",
}
# Those that may use the database that is configured here although a service is named; they say so.
DATABASE = {"api", "bot run", "db upgrade", "db check", "db downgrade", "demo", "tick", "up"}


class Both:
    """The wall clock's time, as what `judged` asks for."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One way to the service: a host's command line, and the database behind it."""

    kbslurm: CommandLine
    store: PostgresStore


@contextmanager
def sides(near: str, far: str, place: Path) -> Iterator[Sequence[Side]]:
    """The same service twice: by the database, and over HTTP."""
    toml = "[daemon.local]\nname = 'local'\nslots = { H100 = 1, A100 = 1 }\n"
    home = {name: place / name for name in ("near", "far")}
    for folder in home.values():
        folder.mkdir()
        (folder / "kbslurm.toml").write_text(f"[daemon]\nstate_dir = '{folder}'\n{toml}")
    with PostgresStore(near) as store, served(far, place / "service", boards=True) as api:
        store.boards.add("transpose", api.store.boards.get("transpose").problem, gpus=("H100", "A100"), confirm=False)
        found = []
        for one in (store, api.store):
            owner = one.people.add("ada", "owner")
            token = one.tokens.issue(owner.id, device="desk")
            for name, score_s in (("bob", 0.002), ("eve", 0.003), ("mia", 0.004)):
                one.people.add(name)
                judged(Both(one), name, score_s)  # type: ignore[arg-type]
            bob = one.people.ensure("bob").id
            (his,) = one.submissions.newest(person=bob)
            for text, number in (("May we?", None), ("When?", None), ("Please.", his.id)):
                one.questions.ask(bob, text, board="transpose", submission=number, appeal=number is not None)
            over_http = {"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token}
            env = {"DATABASE_URL": near} if one is store else over_http
            found.append(Side(kbslurm=CommandLine(cwd=home["near" if one is store else "far"], env=env), store=one))
        yield found


Words = tuple[str, ...] | Callable[[Side, Path], tuple[str, ...]]


def pending(side: Side, folder: Path) -> tuple[str, ...]:
    return ("grace", side.store.tokens.issue(None, kind="pending", device="laptop"))


def invited(side: Side, folder: Path) -> tuple[str, ...]:
    return (side.store.invites.of_board("turn")[0].code,)


def a_problem_beside_its_files(side: Side, folder: Path) -> tuple[str, ...]:
    """A task whose files lie outside of its directory, as in repositories of problems."""
    root = folder / f"shared-{side.kbslurm.cwd.name}"
    shutil.copytree(TRANSPOSE, root / "problems/beside", ignore=shutil.ignore_patterns("submissions"))
    (root / ".git").mkdir()
    task = root / "problems/beside/task.yml"
    shutil.move(root / "problems/beside/reference.py", root / "problems/reference.py")
    text, count = re.subn(r'(source: ?"?)reference\.py', r"\1../reference.py", task.read_text())
    assert count, "the example's task file names its reference otherwise"
    task.write_text(text)
    return (str(root / "problems/beside"),)


def a_script(side: Side, folder: Path) -> tuple[str, ...]:
    (folder / "probe.py").write_text("print(6 * 7)\n")
    return (str(folder / "probe.py"), "--gpu", "h100", "--timeout", "5", "--detach")


def archived(side: Side, folder: Path) -> tuple[str, ...]:
    """Each side writes its own, once."""
    (folder / "archives").mkdir(exist_ok=True)
    return ("transpose", "--out", str(folder / "archives" / side.kbslurm.cwd.name), "--private")


ROSTERS: dict[str, str] = {}
FIRST = "name,email,student id,section,team,notes\nAda Lovelace,ada@example.edu,1815,A,Engine,=1+1\nBob,,7,A,,\n"
LESS = "name,email,team\nAda Lovelace,ada@example.edu,Engine 2\nEmmy Noether,emmy@example.edu,\n"
WRONG = "name,email\nAda,ada@example.edu\nBob,nowhere\n"


def roster(name: str, text: str) -> str:
    """A file that both sides read, beside their own folders."""
    ROSTERS[name] = text
    return f"../{name}"


# Every command of a host, in an order in which each works.
COMMAND_LINES: Sequence[tuple[str, Words]] = [
    ("user add", ("grace",)),
    ("user role", ("grace", "staff")),
    ("user team", ("grace", "blue")),
    ("user team", ("grace",)),
    ("user account", ("grace", "def-hopper")),
    ("user ban", ("grace", "--reason", "too many")),
    ("user unban", ("grace",)),
    ("user link", ("grace", "--account", "discord:77")),
    ("user link", pending),
    ("user link", ("grace", "--account", "elsewhere:77")),
    ("user token issue", ("grace", "--device", "desk", "--days", "3")),
    ("user token list", ("grace",)),
    ("user token revoke", ("grace", "9999")),
    ("user token revoke", ("grace",)),
    ("user list", ()),
    ("user role", ("nobody", "staff")),
    ("problem add", (str(TRANSPOSE), "--name", "Turned")),
    ("problem add", (str(ONE_FILE),)),
    ("problem add", a_problem_beside_its_files),
    ("problem list", ()),
    ("problem show", ("turned",)),
    ("problem show", ("nothing",)),
    ("board create", ("turn", "--problem", "turned", "--gpus", "H100", "--deadline", "2099-01-01")),
    (
        "board create",
        ("whole", "--reference", str(TRANSPOSE), "-g", "H100,A100", "--no-confirm", "--min-isolation", "1"),
    ),
    ("board create", ("single", "--reference", str(ONE_FILE), "-g", "H100", "--visibility", "closed")),
    ("board create", ("turn", "--problem", "turned", "--gpus", "H100")),
    ("board edit", ("turn", "--description", "Faster.", "--deadline", "never", "--visibility", "closed")),
    ("board edit", ("turn", "--gpus", "H100,A100", "--deadline", "2098-01-01 12:00", "--zone", "Europe/Berlin")),
    ("board edit", ("turn",)),
    ("board extend", ("turn", "grace", "2099-02-01")),
    ("board extend", ("turn", "grace", "none")),
    ("board extend", ("turn", "section:none", "2099-02-01")),
    ("board late", ("turn", "--until", "2098-01-03", "--grace", "15m", "--percent", "10", "--slip-days", "2")),
    ("board late", ("turn", "--per", "hour")),
    ("board late", ("turn", "--until", "2098-01-01")),
    ("board late", ("turn", "--until", "2098-01-03", "--grace", "soon")),
    ("board times", ("turn",)),
    ("board late", ("turn", "--until", "none")),
    ("board freeze", ("turn", "--at", "2098-01-01")),
    ("board freeze", ("turn",)),
    ("board times", ("turn",)),
    ("export", ("turn", "--live")),
    ("similar", ("turn", "--with", "turn")),
    ("similar", ("turn", "--at-least", "3")),
    ("board edit", ("turn", "--names", "anonymous", "--standings", "own")),
    ("board edit", ("turn", "--names", "upside down")),
    ("board edit", ("turn", "--standings", "maybe")),
    ("board names", ("turn",)),
    ("board names", ("turn", "--format", "csv")),
    ("board names", ("turn", "--format", "xml")),
    ("board edit", ("turn", "--names", "real", "--standings", "shown")),
    ("board finalise", ("turn",)),
    ("board finalise", ("turn", "--withdraw")),
    ("grades why", ("turn", "nobody", "--scheme", "none.toml")),
    ("grades show", ("turn", "--scheme", "none.toml")),
    ("board code", ("turn",)),
    ("board code", ("turn", "consent", "--licence", "MIT")),
    ("board code", ("turn", "sometimes")),
    ("board unfreeze", ("turn",)),
    ("board unfreeze", ("turn",)),
    ("limit rate", ("turn", "test", "5")),
    ("limit rate", ("turn", "leaderboard", "2")),
    ("limit rate", ("turn", "leaderboard", "none")),
    ("limit quota", ("turn", "60")),
    ("limit show", ("turn",)),
    ("intake stop", ()),
    ("intake show", ()),
    ("intake start", ()),
    ("invite make", ("turn", "single", "-n", "2")),
    ("invite list", ("turn",)),
    ("invite revoke", invited),
    ("invite revoke", ("no-such-code",)),
    ("roster import", (roster("first.csv", FIRST), "--course", "gpu-2026", "--preview")),
    ("roster list", ()),
    ("roster import", (roster("first.csv", FIRST), "--course", "gpu-2026")),
    ("roster import", (roster("first.csv", FIRST),)),
    ("roster import", (roster("less.csv", LESS), "--remove")),
    ("roster import", (roster("wrong.csv", WRONG),)),
    ("roster import", (roster("first.csv", FIRST), "--course", "Not A Course")),
    ("roster list", ()),
    ("roster list", ("--section", "a", "--team", "Engine")),
    ("roster list", ("--course", "another")),
    ("roster show", ("ada@example.edu",)),
    ("roster show", ("nobody@example.edu",)),
    ("roster set", ("ada@example.edu", "--section", "B", "--team", "none")),
    ("roster set", ("grace", "--role", "grader")),
    ("roster set", ("grace", "--role", "boss")),
    ("budget show", ()),
    ("budget set", ("gpu-2026", "--gpu-hours", "100", "--from", "2026-01-01", "--until", "2098-12-24")),
    ("budget set", ("gpu-2026", "--gpu-hours", "2.5", "--each-person")),
    ("budget set", ("gpu-2026", "--gpu-hours", "3", "--person", "ada@example.edu", "--gpu", "H100")),
    ("budget set", ("gpu-2026", "--gpu-hours", "3", "--section", "b")),
    ("budget set", ("gpu-2026", "--gpu-hours", "3", "--section", "none")),
    ("budget set", ("gpu-2026", "--gpu-hours", "3", "--person", "bob")),
    ("budget set", ("gpu-2026", "--gpu-hours", "3", "--until", "2020-01-01")),
    ("budget set", ("gpu-2026", "--gpu-hours", "3", "--until", "soon")),
    ("budget set", ("gpu-2026", "--gpu-hours", "3", "--section", "B", "--each-person")),
    ("budget set", ("no-such-course", "--gpu-hours", "3")),
    ("budget show", ()),
    ("budget show", ("gpu-2026",)),
    ("budget show", ("nowhere",)),
    ("budget clear", ("gpu-2026", "--section", "B")),
    ("budget clear", ("gpu-2026", "--section", "B")),
    ("roster export", ()),
    ("roster invite", ()),
    ("roster invite", ("1815", "--again", "--days", "3")),
    ("roster invite", ("nobody",)),
    ("roster remove", ("grace",)),
    ("roster remove", ("grace",)),
    ("board edit", ("turn", "--course", "gpu-2026", "--teams")),
    ("board edit", ("turn", "--course", "no-such-course")),
    ("board create", ("ours", "--problem", "turned", "--gpus", "H100", "--course", "gpu-2026", "--teams")),
    ("board role", ("ours", "grace", "grader")),
    ("board role", ("ours",)),
    ("board role", ("ours", "grace", "none")),
    ("board role", ("ours", "grace", "boss")),
    ("user add", ("leaver",)),
    ("user delete", ("leaver",)),
    ("user delete", ("leaver", "--yes")),
    ("user delete", ("leaver", "--yes")),
    ("user delete", ("--due",)),
    ("user delete", ("--due", "--yes")),
    ("board delete", ("ours",)),
    ("board edit", ("turn", "--teams-only", "--practice")),
    ("board edit", ("turn", "--no-teams")),
    ("board edit", ("turn", "--course", "none", "--no-teams", "--no-teams-only")),
    ("board edit", ("turn", "--teams-only")),
    ("stats", ()),
    ("stats", ("transpose", "--last-day")),
    ("usage", ("--by", "person")),
    ("usage", ("--by", "board", "--board", "transpose", "--month", "2026-10")),
    ("export", ("transpose",)),
    ("board names", ("transpose", "--of", "bob")),
    ("archive write", archived),
    ("archive write", ("nowhere", "--out", "nothing")),
    ("worklog", ("transpose", "bob")),
    ("worklog", ("transpose", "nobody")),
    ("worklog", ("transpose", "team:none")),
    ("triage", ("1", "2")),
    ("submission list", ()),
    ("submission list", ("--board", "transpose", "--person", "bob", "--verdict", "passed", "--since", "7d")),
    ("submission list", ("--mode", "test", "--limit", "1", "--since", "2020-01-01 12:00")),
    ("submission list", ("--person", "nobody")),
    ("submission list", ("--verdict", "good")),
    ("submission list", ("--since", "soon")),
    ("submission show", ("1",)),
    ("submission show", ("999",)),
    ("submission code", ("1", "2")),
    ("submission code", ("1", "--out", "codes")),
    ("submission code", ("1", "--out", "codes")),
    ("question list", ()),
    ("question list", ("--board", "transpose", "--state", "all")),
    ("question list", ("--board", "nowhere")),
    ("question list", ("--state", "some")),
    ("question show", ("1",)),
    ("question show", ("99",)),
    ("question answer", ("1", "Yes.", "--to-all")),
    ("question answer", ("1", "No.")),
    ("question answer", ("1", "No.", "--again")),
    ("question answer", ("1", " ")),
    ("question close", ("2",)),
    ("question close", ("2",)),
    ("question rejudge", ("1", "--preview")),
    ("question rejudge", ("3", "--estimate")),
    ("question rejudge", ("3", "--apply")),
    ("question rejudge", ("3", "--preview")),
    ("question rejudge", ("3", "--preview")),
    ("question rejudge", ("3", "--apply")),
    ("question rejudge", ("3", "--cancel")),
    ("rejudge", ("transpose", "--preview", "person=bob")),
    ("rejudge", ("transpose", "--apply")),
    ("rejudge", ("transpose", "--cancel")),
    ("final", ("transpose", "--gpu", "H100", "--top", "2")),
    ("final", ("transpose", "--gpu", "H100")),
    ("final", ("transpose", "--gpu", "H100", "--apply")),
    ("final", ("transpose", "--gpu", "H100", "--forget")),
    ("final", ("transpose",)),
    ("shadow order", ("1", "--on", "local")),
    ("shadow order", ("1", "--on", "nowhere")),
    ("shadow report", ("transpose",)),
    ("run", a_script),
    ("place list", ()),
    ("place drain", ("local", "--why", "a fan is exchanged")),
    ("place drain", ("local", "--gpu", "h100")),
    ("place drain", ("nowhere",)),
    ("place drain", ("local", "--gpu", "B300")),
    ("place list", ()),
    ("place logs", ("local",)),
    ("place logs", ("nowhere",)),
    ("place resume", ("local", "--gpu", "H100")),
    ("place resume", ("local",)),
    ("place resume", ("local",)),
    ("place reload", ()),
    ("warm list", ()),
    ("warm start", ("2",)),
    ("warm drain", ("7",)),
    ("warm drain", ("--all",)),
    ("status", ("--no-sites",)),
    ("board close", ("turn",)),
    ("board edit", ("turn", "--reopen")),
    ("board delete", ("transpose",)),
    ("board delete", ("turn",)),
    ("board close", ("gone",)),
    ("audit", ("--limit", "300")),
]

VOLATILE = {
    "token": "a secret",
    "code": "a secret",
    "link": "a link",
    "pseudonym": "a pseudonym",
    "via": "",
    "where": "",
    "database": "a database",
    "commit": "a commit",
    "oldest_s": "a while",
    "sha256": "a digest",
    "bytes": "a size",
}


def plain(value: Any) -> Any:
    """An answer without what two services can't have in common: moments, secrets, where a call came from."""
    if isinstance(value, Mapping):
        return {key: VOLATILE.get(key, plain(one)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, str):
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)", "a moment", value)
        text = re.sub(r"\S*/archives/(near|far)\b", "a folder", text)
        text = re.sub(r"\bdeleted-[0-9a-f]{8}\b", "a pseudonym", text)
        return re.sub(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}\b", "a code", text)
    return value


def refused(said: Said) -> str:
    """What was wrong, in the words of both: over HTTP a hint is a part of the sentence."""
    error = said.json()["error"]
    return str(plain(re.sub(r"[^a-z0-9]+", " ", f"{error['message']} {error['hint'] or ''}".lower()).strip()))


def test_every_command_of_a_host_is_here() -> None:
    named = {name for name, _ in COMMAND_LINES} | {"problem sync"}
    assert set(leaves(COMMANDS)) == named | HERE | COMPETITORS


def test_every_command_says_and_notes_the_same_over_http(
    database_url: str, new_database_url: Callable[[], str], tmp_path: Path
) -> None:
    from kbslurm.store import migrate

    other = new_database_url()
    migrate.upgrade(other)
    git = repository(tmp_path / "git")
    wanted: list[tuple[str, Words]] = [*COMMAND_LINES[:-1], ("problem sync", (f"file://{git}",)), COMMAND_LINES[-1]]
    for file_name, text in ROSTERS.items():
        (tmp_path / file_name).write_text(text)
    with sides(other, database_url, tmp_path) as (near, far):
        for name, words in wanted:
            one, two = (
                side.kbslurm(*name.split(), *(words(side, tmp_path) if callable(words) else words), "--json")
                for side in (near, far)
            )
            assert (one.code, one.err) == (two.code, two.err), (name, words, one.out, one.err, two.out, two.err)
            if one.code in (0, 1, 3):
                assert plain(one.json()) == plain(two.json()), (name, words)
            else:
                assert refused(two).startswith(refused(one)[: len(refused(two))]), (name, refused(one), refused(two))
        noted = [
            [(line.kind, line.subject, plain(line.data)) for line in side.store.events.audit_log(limit=500)]
            for side in (near, far)
        ]
        assert noted[0] == noted[1] and len(noted[0]) > 30
        assert {line.data["via"] for line in far.store.events.audit_log(limit=500)} == {"api"}
        assert {line.data["by"] for line in far.store.events.audit_log(limit=500)} == {"ada"}


MACHINE: Mapping[str, tuple[str, ...]] = {
    "github install": ("nowhere",),
    "image build": ("nowhere.def",),
    "image pull": ("docker://127.0.0.1:9/nothing@sha256:00", "--time-limit", "5"),
    "image push": ("nowhere",),
    "image verify": ("nowhere.sif",),
    "problem verify": ("nowhere",),
    "site init": ("nowhere",),
    "site check": ("nowhere.toml",),
    "site show": ("nowhere.toml",),
    "site render": ("nowhere.toml", "H100"),
    "try": ("nowhere", "k.py"),
    "board show": ("transpose",),
    "cancel": ("1",),
    "diff": ("1", "2"),
    "submission diff": ("1", "2"),
    "logs": ("1",),
    "profile": ("1",),
    "submit": ("k.py",),
    "watch": ("1", "--once"),
    "why": ("1",),
    "context use": ("nowhere",),
    "context remove": ("nowhere",),
    "problem sync": ("https://127.0.0.1:9/nothing",),
}


def test_no_command_opens_a_database_while_a_service_is_named(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(database_url, tmp_path / "service") as api:
        token = api.store.tokens.issue(api.store.people.add("ada", "owner").id, now=api.now)
        home = tmp_path / "home"
        home.mkdir()
        (home / "k.py").write_text("def custom_kernel(data):\n    return data\n")
        opened: list[str] = []

        def database(config: object) -> NoReturn:
            opened.append("a database")
            raise AssertionError("a database was opened")

        monkeypatch.setattr(wiring, "database", database)
        run = CommandLine(
            cwd=home, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token, "XDG_CONFIG_HOME": str(home / "conf")}
        )
        usual = {name: words for name, words in reversed(COMMAND_LINES) if not callable(words)}
        for name in sorted(set(leaves(COMMANDS)) - DATABASE):
            monkeypatch.setattr(sys, "stdin", io.StringIO(f"{token}\n"))
            words = MACHINE.get(name) or usual.get(name) or ()
            run(*name.split(), *words)
            assert not opened, f"kbslurm {name} opens a database"
        assert not list(home.rglob("postgres"))


def test_what_runs_the_service_here_says_which_database_it_uses(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "kbslurm.toml").write_text(
        f"[daemon]\nstate_dir = '{tmp_path}'\n[daemon.local]\nslots = {{ H100 = 1 }}\n"
    )
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url, "KBSLURM_URL": "http://127.0.0.1:9"})
    for words in (("db", "check"), ("db", "upgrade"), ("up", "--once")):
        told = kbslurm(*words)
        assert told.code == 0, told.err
        assert "uses the database that is configured here" in told.err and "not http://127.0.0.1:9" in told.err
        assert database_url not in told.err, "an address may have a password in it"
    assert "configured here" not in kbslurm("db", "check", KBSLURM_URL="").err


ODD: Sequence[tuple[str, ...]] = [
    ("triage", "²"),
    ("triage", "9" * 25),
    ("limit", "quota", "transpose", "nan"),
    ("budget", "set", "gpu-2026", "--gpu-hours", "nan"),
    ("budget", "set", "gpu-2026", "--gpu-hours", "-1"),
    ("budget", "set", "", "--gpu-hours", "1"),
    ("budget", "set", "..", "--gpu-hours", "1"),
    ("budget", "show", ".."),
    ("limit", "quota", "transpose", "1e400"),
    ("rejudge", "transpose", "--preview", f"submission={'9' * 25}"),
    ("board", "extend", "transpose", "bob", ""),
    ("board", "close", "."),
    ("board", "close", ".."),
    ("board", "delete", ""),
    ("invite", "list", ".."),
    ("invite", "revoke", ".."),
    ("board", "edit", "transpose", "--description", "half", "--version", "999"),
    ("board", "edit", "transpose", "--description", "half", "--zone", "Bogus"),
    ("board", "edit", "transpose", "--description", "half", "--zone", ""),
    ("board", "edit", "transpose", "--reopen", "--deadline", "never", "--zone", "Bogus"),
    ("board", "create", "fresh", "--problem", "transpose", "--gpus", "H100", "--deadline", ""),
    ("board", "create", "fresh", "--problem", "transpose", "--gpus", "H100", "--deadline", " "),
    ("board", "create", "fresh", "--problem", "transpose", "--gpus", ""),
    ("board", "create", "fresh", "--problem", "transpose", "--gpus", ","),
    ("board", "create", "fresh", "--problem", "transpose", "--gpus", "H100", "--visibility", ""),
    ("board", "create", "fresh", "--problem", "transpose", "--gpus", "H100", "--as", ""),
    ("board", "create", "fresh", "--problem", ""),
    ("board", "edit", "transpose", "--gpus", ""),
    ("board", "edit", "transpose", "--deadline", ""),
    ("board", "extend", "transpose", "", "2099-01-01"),
    ("limit", "rate", "transpose", "test", ""),
    ("problem", "show", ""),
    ("user", "ban", "bob", "--as", ""),
    ("user", "team", "bob", ""),
    ("stats", ""),
]


def test_what_makes_no_sense_is_refused_both_ways_and_changes_nothing(
    database_url: str, new_database_url: Callable[[], str], tmp_path: Path
) -> None:
    from kbslurm.store import migrate

    other = new_database_url()
    migrate.upgrade(other)
    wrong = []
    with sides(other, database_url, tmp_path) as both:
        for side in both:
            assert side.kbslurm("board", "extend", "transpose", "bob", "2099-01-01").code == 0
        for way, side in zip(("database", "HTTP"), both, strict=True):
            before = len(side.store.events.audit_log(limit=500)), side.store.boards.get("transpose")
            for words in ODD:
                told = side.kbslurm(*words, "--json")
                error = told.json().get("error", {})
                if told.code != 2 or error.get("message") in ("Not Found", "Method Not Allowed"):
                    wrong.append((way, *words, told.code, error.get("message")))
                after = len(side.store.events.audit_log(limit=500)), side.store.boards.get("transpose")
                if after != before or side.store.boards.find("fresh") is not None:
                    wrong.append((way, *words, "changed something"))
                    before = after
        service = both[1]
        token = {"Authorization": f"Bearer {service.kbslurm.env['KBSLURM_TOKEN']}"}
        body = {"name": "fresh", "problem": "transpose", "gpus": ["H100"]}
        with httpx.Client(base_url=service.kbslurm.env["KBSLURM_URL"], headers=token, timeout=60) as http:
            for more in ({"deadline": ""}, {"gpus": [""]}, {"zone": ""}):
                answer = http.post("/admin/leaderboards/of-problem", json={**body, **more})
                assert (answer.status_code, service.store.boards.find("fresh")) == (400, None), answer.text
    assert not wrong, "\n".join(map(str, wrong))


SAID_ALIKE: Sequence[tuple[str, ...]] = [
    ("stats", "nothing"),
    ("stats", "x" * 65),
    ("board", "close", "nothing"),
    ("board", "close", "x" * 65),
    ("board", "create", "x" * 65, "--problem", "transpose"),
    ("board", "create", "long", "--problem", "transpose", "--description", "x" * 4001),
    ("board", "create", "long", "--problem", "transpose", "--gpus", "x" * 65),
    ("board", "edit", "transpose", "--description", "x" * 4001),
    ("board", "edit", "transpose", "--deadline", "9" * 65),
    ("board", "edit", "transpose", "--zone", "x" * 65),
    ("board", "extend", "transpose", "bob", "9" * 65),
    ("user", "add", "x" * 201),
    ("user", "add", "x" * 65),
    ("user", "role", "x" * 101, "staff"),
    ("user", "role", "nobody", "staff"),
    ("user", "role", "ada", "participant"),
    ("user", "team", "bob", "x" * 201),
    ("user", "ban", "bob", "--reason", "x" * 201),
    ("user", "link", "bob", "--account", "x" * 301),
    ("user", "token", "issue", "bob", "--device", "x" * 201),
    ("problem", "show", "nothing"),
]


def test_a_refusal_has_one_wording_and_one_kind_both_ways_and_long_texts_are_refused(
    database_url: str, new_database_url: Callable[[], str], tmp_path: Path
) -> None:
    from kbslurm.store import migrate

    other = new_database_url()
    migrate.upgrade(other)
    with sides(other, database_url, tmp_path) as (near, far):
        for words in SAID_ALIKE:
            one, two = (side.kbslurm(*words, "--json") for side in (near, far))
            errors = [told.json()["error"] for told in (one, two)]
            assert one.code == two.code != 0, (words, one.out, two.out)
            assert errors[0]["kind"] == errors[1]["kind"], (words, errors)
            assert errors[1]["message"].startswith(errors[0]["message"]), (words, errors)
        for side in (near, far):
            assert "transpose" in side.kbslurm("stats", "nothing").err, "the known ones"
            assert side.store.people.find("bob").banned_at is None  # type: ignore[union-attr]


def test_a_name_is_the_services_problem_and_a_path_has_a_slash(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path / "service") as api:
        home = tmp_path / "home"
        shutil.copytree(TRANSPOSE, home / "transpose")
        task = home / "transpose" / "task.yml"
        task.write_text(task.read_text().replace("Transpose a greyscale", "Another: transpose a greyscale"))
        token = api.store.tokens.issue(api.store.people.add("sam", "staff").id, now=api.now)
        kbslurm = CommandLine(cwd=home, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})
        theirs, ours = (kbslurm("problem", "show", name, "--json") for name in ("transpose", "./transpose"))
        assert (theirs.code, ours.code) == (0, 0), (theirs.err, ours.err)
        assert not theirs.json()["description"].startswith("Another") and ours.json()["description"].startswith(
            "Another"
        )
        (home / "other").mkdir()
        told = kbslurm("problem", "show", "other")
        assert told.code == 2 and "kbslurm problem show ./other" in told.err, told.err


def test_rights_that_are_an_owners_to_give(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path / "service") as api:
        store, people = api.store, api.store.people
        olga, sam, bob = people.add("olga", "owner"), people.add("sam", "staff"), people.add("bob")
        home = tmp_path / "home"
        home.mkdir()
        as_ = {
            one.name: CommandLine(
                cwd=home, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": store.tokens.issue(one.id, now=api.now)}
            )
            for one in (olga, sam, bob)
        }
        pending = store.tokens.issue(None, kind="pending", device="laptop", now=api.now)
        for words in (
            ("user", "role", "sam", "owner"),
            ("user", "role", "bob", "staff"),
            ("user", "role", "olga", "participant"),
            ("user", "add", "tom", "--role", "owner"),
            ("user", "token", "issue", "olga"),
            ("user", "token", "revoke", "olga"),
            ("user", "link", "olga", "--account", "discord:1"),
            ("user", "link", "olga", pending),
        ):
            told = as_["sam"](*words)
            assert told.code == 5 and "only an owner" in told.err, (words, told.err)
            assert as_["bob"](*words).code == 4, words
        assert {one.name: one.role for one in people.all() if one.name in as_} == {
            "olga": "owner", "sam": "staff", "bob": "participant",
        }  # fmt: skip
        assert as_["sam"]("user", "token", "issue", "sam").code == 0, "one's own"
        assert as_["sam"]("user", "token", "issue", "bob").code == 0
        assert as_["olga"]("user", "role", "bob", "staff").code == 0


def test_staff_cancel_anyones_submission_over_http_and_that_is_noted(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path / "service") as api:
        people = {"sam": api.store.people.add("sam", "staff"), "bob": api.store.people.add("bob")}
        mine = api.client("ada").submit("transpose", "H100", "test", "k.py", GOOD)
        home = tmp_path / "home"
        home.mkdir()
        as_ = {
            name: CommandLine(
                cwd=home, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": api.store.tokens.issue(one.id, now=api.now)}
            )
            for name, one in people.items()
        }
        assert as_["bob"]("cancel", str(mine)).code == 5
        assert as_["sam"]("cancel", str(mine), "--json").json() == {"submission": mine, "still_to_end": 0}
        line = next(iter(api.store.events.audit_log(limit=1)))
        assert (line.kind, line.subject, line.data["by"]) == ("staff.cancel", f"submission:{mine}", "sam")
