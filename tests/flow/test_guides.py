"""Each guide's first ten minutes, typed as they stand: blocks for the shell are run, in order, the others are saved.

A block that isn't for the shell is the file that the text before it names; one in TOML goes below what is in that file
already. A command that its comment sends into a terminal of its own runs beside the others. What needs a real cluster
is only parsed, by the command that it is for.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.backends.github import repository_files
from kbslurm.config import shared_folders
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.fakes import discord, github, modal
from tests.flow.test_bot import free_port
from tests.flow.test_bot_announce import ranks
from tests.popcorn.served_api import served, working
from tests.services import GIT, needs

ROOT = Path(__file__).resolve().parents[2]
SLURM = ROOT / "tests" / "golden" / "data" / "slurm-24.11"
HEADING = "The first ten minutes"
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
BESIDE = "in a terminal of its own"
PATIENCE_S = 500
# Until the service that was started beside answers
ANSWERS = """\
import os, sys, time, urllib.request
beside = int(sys.argv[1])
until = time.monotonic() + 120
while True:
    try:
        sys.exit(urllib.request.urlopen(os.environ["SERVICE"] + "/health").status != 200)
    except OSError as error:
        os.kill(beside, 0)  # no longer there: nothing will answer
        if time.monotonic() > until:
            sys.exit(f"no answer: {error}")
        time.sleep(0.1)
"""


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A section of a guide. `replaced`: what stands for something of the reader's own, and what it is here."""

    name: str
    heading: str = HEADING
    replaced: Mapping[str, str] = field(default_factory=dict)
    needs_a_cluster: Sequence[str] = ()

    def script(self) -> str:
        """The section as one script for bash."""
        text = section(ROOT / "docs" / f"{self.name}.md", self.heading)
        for words, ours in self.replaced.items():
            assert words in text, f"docs/{self.name}.md no longer says {words}"
            text = text.replace(words, ours)
        lines, last = [], 0
        for found in FENCE.finditer(text):
            body = textwrap.dedent(found["body"])
            lines += self._typed(body) if found["kind"] == "sh" else _saved(text[last : found.start()], body)
            last = found.end()
        return "\n".join(lines)

    def _typed(self, body: str) -> list[str]:
        lines = []
        for line in body.splitlines():
            if line.startswith(tuple(self.needs_a_cluster)):
                continue
            command, _, comment = line.partition(" #")
            if BESIDE in comment:
                lines += [f"{command} >beside.log 2>&1 &", '"$PYTHON" -c "$ANSWERS" $!']
            else:
                lines.append(line)
        return lines

    def only_parsed(self) -> list[str]:
        text = section(ROOT / "docs" / f"{self.name}.md", self.heading)
        lines = [line.strip() for found in FENCE.finditer(text) for line in found["body"].splitlines()]
        return [line for line in lines if line.startswith(tuple(self.needs_a_cluster))]


def section(guide: Path, heading: str) -> str:
    """What stands below the heading, up to the next one of its rank or above."""
    text = guide.read_text()
    start = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert start, f"{guide.name} has no “{heading}”"
    below = FENCE.sub(lambda block: re.sub(r"(?m)^#", "\0", block[0]), text[start.end() :])  # no headings in code
    return re.split(rf"(?m)^#{{1,{len(start[1])}}} ", below)[0].replace("\0", "#")


def _saved(before: str, body: str) -> list[str]:
    names = re.findall(r"`([\w./-]+\.(?:py|toml|yml|csv))`", before)
    assert names, f"no file is named before\n{body}"
    return [f"cat >>{names[-1]} <<'END OF FILE'", *body.splitlines(), "END OF FILE"]


@dataclass(frozen=True, kw_only=True)
class Shell:
    """A shell in a home folder with nothing in it but `examples`; our programs come before the machine's."""

    home: Path
    env: Mapping[str, str]

    def type(self, guide: Guide, *, stdin: str = "", **env: str) -> str:
        at_last = "for one in $(jobs -p); do kill $one || true; done; wait"
        script = f"set -euo pipefail\ntrap '{at_last}' EXIT\nset -x\n{guide.script()}\n"
        said = subprocess.run(
            ["bash", "-c", script],
            cwd=self.home,
            env={**self.env, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        beside = self.home / "beside.log"
        more = beside.read_text() if beside.exists() else ""
        assert said.returncode == 0, "\n".join((said.stdout[-2000:], said.stderr[-3000:], more[-2000:]))
        return said.stdout

    def program(self, name: str, text: str) -> None:
        file = self.home / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "examples").symlink_to(ROOT / "examples")
    machine = {key: os.environ[key] for key in ("LANG", "TMPDIR") if key in os.environ}
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    env = {**machine, "PATH": path, "HOME": str(home), "PYTHON": sys.executable, "ANSWERS": ANSWERS}
    made = Shell(home=home, env=env)
    made.program("kbslurm", f'exec {shlex.quote(sys.executable)} -m kbslurm "$@"')
    return made


@contextmanager
def listening(shell: Shell, toml: str = "") -> Iterator[str]:
    """The reader's kbslurm.toml says where the service listens, so that it is a free port."""
    port = free_port()
    (shell.home / "kbslurm.toml").write_text(f"{toml}[server]\nlisten = '127.0.0.1:{port}'\n")
    yield f"http://127.0.0.1:{port}"


def test_a_competitors_commands_run(shell: Shell, database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path / "service") as api, working(api, tmp_path / "service"):
        api.store.boards.set_visibility("transpose", "closed", by="root", now=api.now)
        api.store.boards.edit("transpose", by="root", publishes_reference=True, now=api.now)
        (code,) = api.store.invites.make(["transpose"], 1, by="root", newcomers=True, now=api.now)[1]
        ours = {"https://kernels.example.edu": api.url, "H7K2-9QXW-4MZT": code}
        said = shell.type(Guide(name="competitor-guide", replaced=ours))
    assert said.count("passed") >= 3, said


def test_a_hosts_commands_run(shell: Shell, database_url: str) -> None:
    said = shell.type(Guide(name="host-guide"), DATABASE_URL=database_url)
    assert "grace" in said.splitlines()[-1], said


def test_a_hosts_deadlines_and_grades_run(shell: Shell, database_url: str, tmp_path: Path) -> None:
    """On a board with one ranked submission, as the sections tell it."""
    with served(database_url, tmp_path / "service") as api:
        api.store.boards.edit("transpose", by="host", gpus=["H100"], now=api.now)
        ends = datetime(2099, 12, 24, 17, tzinfo=UTC)
        api.store.boards.set_deadline("transpose", ends, "Europe/Berlin", now=api.now)
        ranks(api, "ada", 0.0015)
        told = {name: Guide(name="host-guide", heading=name) for name in ("Deadlines and freezes", "Grades")}
        said = {name: shell.type(guide, DATABASE_URL=database_url) for name, guide in told.items()}
    assert "late submissions until 2099-12-27 18:00 Europe/Berlin" in said["Deadlines and freezes"]
    assert "ada: 100 of 100 on transpose" in said["Grades"]
    assert "815" in (shell.home / "grades.csv").read_text()


def test_a_course_in_one_afternoon_runs_as_it_is_told(shell: Shell, database_url: str) -> None:
    """From the roster to everybody's team on the board, in a place that has been set up."""
    with PostgresStore(database_url) as store:
        (shell.home / "kbslurm.toml").write_text("[daemon.local]\nslots = { H100 = 1 }\n")
        said = shell.type(Guide(name="host-guide", heading="A course in one afternoon"), DATABASE_URL=database_url)
        assert [one.text for one in store.questions.announcements(store.boards.get("transpose").id)] == [
            "Any version of Triton is allowed."
        ]
        people = store.roster.of_course("gpu-2026", everyone=True)
        assert [(one.full_name, one.section, one.team, one.role) for one in people] == [
            (None, None, None, "grader"),  # tess, who came by no file
            ("Ada Lovelace", "A", "engine", "student"),
            ("Emmy Noether", "A", "engine", "student"),
            ("Grace Hopper", "C", None, "student"),
        ]
        assert all(one.invited_until for one in people)
    assert len(list((shell.home / "mails").glob("*.eml"))) == 3
    assert ",engine," in said.splitlines()[-1], said


def test_a_problem_authors_commands_run(shell: Shell, database_url: str) -> None:
    said = shell.type(Guide(name="problem-author-guide"), DATABASE_URL=database_url)
    assert "passed" in said, said


def test_an_operators_commands_run(shell: Shell, database_url: str) -> None:
    with listening(shell) as url:
        said = shell.type(Guide(name="operate"), DATABASE_URL=database_url, SERVICE=url)
    assert "PASS" in said, said


SITE = Guide(name="site-admin", needs_a_cluster=("kbslurm doctor --site", "kbslurm image build"))


def test_a_site_admins_commands_run_on_what_a_slurm_said(shell: Shell) -> None:
    recorded = shlex.quote(str(SLURM))
    shell.program("sinfo", f'case "$*" in -V) echo slurm 24.11.5;; *) cat {recorded}/sinfo.txt;; esac')
    config = f"cat {recorded}/config.txt"
    shell.program("scontrol", f'case "$*" in *partition) cat {recorded}/partitions.txt;; *) {config};; esac')
    shell.program("sacctmgr", f"cat {recorded}/associations.txt")
    shared = {"/shared/kbslurm": str(shell.home / "shared")}
    said = shell.type(Guide(name=SITE.name, replaced=shared, needs_a_cluster=SITE.needs_a_cluster))
    assert "H100" in said, said


@pytest.mark.parametrize("line", SITE.only_parsed())
def test_what_needs_a_cluster_is_only_parsed_by_its_command(shell: Shell, line: str) -> None:
    assert parsed(shell, line) == 0, line


@pytest.mark.parametrize("line", ["kbslurm doctr --site x", "kbslurm doctor --sight x", "kbslurm image bild cuda"])
def test_a_misspelt_command_doesnt_parse(shell: Shell, line: str) -> None:
    assert parsed(shell, line) == 2, line


def test_the_bots_commands_run_against_the_loopback_discord(shell: Shell, database_url: str) -> None:
    with discord.served() as fake:
        addresses = f"api_url = '{fake.url}/api/v10'\ngateway_url = '{fake.gateway_url}'\n"
        with listening(shell, f"[daemon.local]\nslots = {{ H100 = 1 }}\n[discord]\n{addresses}") as url:
            guide = Guide(name="discord", replaced={"PASTE-IT-HERE": discord.TOKEN})
            said = shell.type(guide, DATABASE_URL=database_url, SERVICE=url)
        assert fake.met["identify"], "the bot came"
    last = said.splitlines()[-1]
    assert last.startswith("PASS") and "FAIL" not in said, said


def test_overflows_commands_run_against_the_loopback_modal(shell: Shell, tmp_path: Path) -> None:
    with modal.FakeModal(tmp_path / "there") as fake:
        env = {"MODAL_TOKEN_ID": modal.TOKEN[0], "MODAL_TOKEN_SECRET": modal.TOKEN[1], "MODAL_SERVER_URL": fake.url}
        said = shell.type(Guide(name="overflow"), **env)
        assert list(fake.functions) == ["judge-v2-H100"]
    assert "PASS" in said and "FAIL" not in said, said


@needs(GIT)
def test_the_steps_to_github_run_against_the_loopback_one(shell: Shell, tmp_path: Path) -> None:
    origin = tmp_path / "kernel-runs.git"
    identity = "[user]\nname = ada\nemail = ada@example.edu\n[init]\ndefaultBranch = main\n"
    (shell.home / ".gitconfig").write_text(identity)
    for argv in (["git", "init", "-q", "--bare", str(origin)], ["git", "clone", "-q", str(origin), "first"]):
        subprocess.run(argv, cwd=tmp_path, env=dict(shell.env), check=True, capture_output=True)
    for argv in (["git", "commit", "-q", "--allow-empty", "-m", "first"], ["git", "push", "-q"]):
        subprocess.run(argv, cwd=tmp_path / "first", env=dict(shell.env), check=True, capture_output=True)
    env = {"GITHUB_TOKEN": github.TOKEN, "KBSLURM_RUN_KEY": "ab" * 32}
    files = repository_files.files(shared_folders.eval_dir())
    repository = "example-university/kernel-runs"
    key = {"KBSLURM_RUN_KEY": env["KBSLURM_RUN_KEY"]}
    fake = github.FakeGithub(tmp_path / "github", files, secrets_=key, repository=repository)
    try:
        guide = Guide(name="overflow", heading="Set it up", replaced={f"git@github.com:{repository}.git": str(origin)})
        said = shell.type(guide, GITHUB_API_URL=fake.url, **env)
    finally:
        fake.close()
    assert "PASS" in said and "FAIL" not in said, said
    argv = ["git", "ls-tree", "-r", "--name-only", "main"]
    pushed = subprocess.run(argv, cwd=origin, capture_output=True, text=True, check=True)
    assert ".github/workflows/kbslurm-run.yml" in pushed.stdout


@pytest.mark.parametrize(
    ("guide", "word", "misspelt"),
    [("operate", "kbslurm db upgrade", "kbslurm db upgarde"), ("site-admin", "--shared-root", "--shared-roof")],
)
def test_a_misspelt_command_of_a_guide_ends_it(shell: Shell, guide: str, word: str, misspelt: str) -> None:
    with pytest.raises(AssertionError, match=misspelt):
        shell.type(Guide(name=guide, replaced={word: misspelt}, needs_a_cluster=SITE.needs_a_cluster))


def parsed(shell: Shell, line: str) -> int:
    """The exit code of the line with --help at its end: an option that the command doesn't know ends it before."""
    return CommandLine(cwd=shell.home)(*shlex.split(line, comments=True)[1:], "--help").code
