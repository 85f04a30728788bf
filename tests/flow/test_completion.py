"""What Tab completes, in the real shells: by a service, by a database, and silently nothing where neither answers."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.flow.stage import HandClock
from tests.flow.test_cli_http import judged
from tests.popcorn.served_api import ServedApi, served
from tests.services import FISH, ZSH, needs

PATIENCE_S = 30.0
BIN = Path(sys.executable).parent
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(_KBSLURM_COMPLETE=source_bash kbslurm)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit; compinit -u -D; eval "$(_KBSLURM_COMPLETE=source_zsh kbslurm)"',
    ),
}
# What is typed, and what the line is after Tab.
TYPED = {
    "kbslurm boa\t": "board",
    "kbslurm board show tr\t": "transpose",
    "kbslurm board tr\t": "transpose",
    "kbslurm submit k.py --leaderboard tr\t": "transpose",
    "kbslurm submit k.py --gpu H1\t": "H100",
    "kbslurm submit k.py --mode lea\t": "leaderboard",
    "kbslurm watch \t": "1",
    "kbslurm user ban mal\t": "mallory",
    "kbslurm board list -o na\t": "name",
}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        built.store.people.ensure("ada", "owner")
        judged(built, "ada", 0.5)
        built.store.people.add("mallory")
        yield built


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "KBSLURM_PERSON": "ada",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        **more,
    }


def ways(api: ServedApi, folder: Path) -> dict[str, dict[str, str]]:
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    return {
        "HTTP": environment(folder, KBSLURM_URL=api.url, KBSLURM_TOKEN=token),
        "database": environment(folder, DATABASE_URL=api.store.url),
    }


class Keyboard:
    """An interactive shell in a terminal of its own."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(argv[0], list(argv), dict(env))
        self.shown = ""

    def types(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def shows(self, text: str, within_s: float = PATIENCE_S) -> bool:
        """Whether that comes to be shown after what was seen last."""
        until = time.monotonic() + within_s
        while text not in self.shown and (left := until - time.monotonic()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        found = text in self.shown
        self.shown = self.shown.partition(text)[2] if found else self.shown
        return found

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@contextlib.contextmanager
def sitting_at(shell: str, env: Mapping[str, str], folder: Path) -> Iterator[Keyboard]:
    argv, source = SHELLS[shell]
    keyboard = Keyboard(argv, env, folder)
    try:
        keyboard.types(f"{source}\necho re''ady\n")
        assert keyboard.shows("ready\r\n"), keyboard.shown
        yield keyboard
    finally:
        keyboard.close()


@pytest.mark.parametrize("by", ["HTTP", "database"])
@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=needs(ZSH))])
def test_tab_completes_in_a_shell(api: ServedApi, tmp_path: Path, shell: str, by: str) -> None:
    with sitting_at(shell, ways(api, tmp_path)[by], tmp_path) as keyboard:
        for typed, word in TYPED.items():
            # The line is echoed once it is complete, from its begin (^A) to its end (^E).
            keyboard.types(typed)
            keyboard.types("\x01printf '<%s>' \x05\n")
            assert keyboard.shows(f"<{word}>"), (typed, keyboard.shown)


@needs(FISH)
@pytest.mark.parametrize("by", ["HTTP", "database"])
def test_tab_completes_in_fish(api: ServedApi, tmp_path: Path, by: str) -> None:
    env = ways(api, tmp_path)[by]
    for typed, word in TYPED.items():
        assert word in fish(typed.rstrip("\t"), env, tmp_path), typed


def fish(typed: str, env: Mapping[str, str], folder: Path) -> list[str]:
    """The candidates, without what is said about them."""
    source = "env _KBSLURM_COMPLETE=source_fish kbslurm | source"
    said = subprocess.run(
        ["fish", "--no-config", "-c", f"{source}; complete -C '{typed}'"],
        env=dict(env), cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert said.returncode == 0 and not said.stderr, said
    return [line.partition("\t")[0] for line in said.stdout.splitlines()]


def asked(typed: str, env: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What bash's completion runs."""
    words = typed.split(" ")
    told = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_KBSLURM_COMPLETE": "complete_bash"}
    return subprocess.run(
        [str(BIN / "kbslurm")], env={**env, **told}, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip


def test_a_boards_gpus_are_offered_and_only_ones_own_submissions(api: ServedApi, tmp_path: Path) -> None:
    judged(api, "mallory", 0.4)
    for env in ways(api, tmp_path).values():
        assert asked("kbslurm submit k.py -l transpose -g ", env, tmp_path).stdout.split() == ["H100", "A100"]
        assert asked("kbslurm watch ", env, tmp_path).stdout.split() == ["1"]
        assert asked("kbslurm diff 1 ", env, tmp_path).stdout.split() == ["1"]


def test_people_are_offered_to_hosts_only(api: ServedApi, tmp_path: Path) -> None:
    token = api.store.tokens.issue(api.store.people.ensure("mallory").id, now=api.now)
    env = environment(tmp_path, KBSLURM_URL=api.url, KBSLURM_TOKEN=token)
    said = asked("kbslurm user ban ", env, tmp_path)
    assert (said.stdout.strip(), said.stderr) == ("", "")


@pytest.mark.parametrize("typed", ["kbslurm board show ", "kbslurm user ban a"])
@pytest.mark.parametrize(
    "why", ["nothing is set up", "nobody listens", "nobody answers", "no such database", "nonsense"]
)
def test_where_nothing_answers_nothing_is_offered_or_said_and_soon(tmp_path: Path, why: str, typed: str) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:  # accepts, and never answers
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        env = {
            "nothing is set up": {},
            "nobody listens": {"KBSLURM_URL": "http://127.0.0.1:9", "KBSLURM_TOKEN": "t" * 40},
            "nobody answers": {"KBSLURM_URL": f"http://{at}", "KBSLURM_TOKEN": "t" * 40},
            "no such database": {"DATABASE_URL": f"postgresql://nobody@{at}/none"},
            "nonsense": {"KBSLURM_URL": "not a url"},
        }[why]
        began = time.monotonic()
        said = asked(typed, environment(tmp_path, **env), tmp_path)
        took_s = time.monotonic() - began
    assert (said.stdout.strip(), said.stderr) == ("", ""), said
    assert took_s < 10, "two seconds and the start of Python"
    assert not list(tmp_path.iterdir()), "no database was made by the way"
