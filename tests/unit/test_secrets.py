"""Secrets: from the environment, a file or a command; read again when they are rotated; never shown."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from pathlib import Path

import pytest

from kbslurm.config import reloading, secret_values, settings
from kbslurm.config.display import shown
from kbslurm.config.secret_values import MASK, Secrets
from kbslurm.domain.secret_names import for_place, is_secret, named_in
from kbslurm.errors import Misconfigured
from kbslurm.observe import logs
from tests.flow.stage import overheard


def script(folder: Path, text: str) -> str:
    file = folder / "prints secret.py"
    file.write_text(text)
    return shlex.join([sys.executable, str(file)])


def test_a_command_prints_one_and_runs_once_and_only_when_it_is_needed(tmp_path: Path) -> None:
    command = script(tmp_path, "open('ran', 'a').write('x'); print('  gh_from_vault\\n')")
    config = settings.load(None, {"GITHUB_TOKEN_COMMAND": command}, cwd=tmp_path)
    assert not (tmp_path / "ran").exists()
    rows = {key: (value, origin) for key, value, origin in shown(config)}
    assert rows["GITHUB_TOKEN"] == (MASK, "$GITHUB_TOKEN_COMMAND")
    assert not (tmp_path / "ran").exists()
    assert config.secret("GITHUB_TOKEN") == config.secret("GITHUB_TOKEN") == "gh_from_vault"
    assert (tmp_path / "ran").read_text() == "x"
    assert "gh_from_vault" not in repr(config)


def test_it_gets_no_shell_and_none_of_our_other_secrets(tmp_path: Path) -> None:
    command = script(tmp_path, "import os, sys; print('-'.join([*sys.argv[1:], *map(str, sorted(os.environ))]))")
    env = {
        "GITHUB_TOKEN_COMMAND": f"{command} $HOME ';' id", "PATH": "/bin", "DISCORD_TOKEN": "hush",
        "MODAL_TOKEN_ID_FILE": "/x",
    }  # fmt: skip
    said = Secrets(env, tmp_path)["GITHUB_TOKEN"].reveal()
    assert said.startswith("$HOME-;-id-") and "PATH" in said
    assert not {"DISCORD_TOKEN", "MODAL_TOKEN_ID_FILE", "GITHUB_TOKEN_COMMAND"} & set(said.split("-"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; print('hush-hush'); print('hush-hush', file=sys.stderr); sys.exit(3)", "failed (exit code 3)"),
        ("", "printed nothing"),
        ("import os, signal; print('hush-hush', flush=True); os.kill(os.getpid(), signal.SIGKILL)", "(signal 9)"),
        ("import sys; sys.stdout.buffer.write(b'hush-hush\\xff')", "isn't UTF-8"),
        ("print('hush-hush' * 10000)", "too long"),
        ("print('hush\\0hush')", "NUL"),
    ],
)
def test_a_command_that_fails_is_one_sentence_without_its_output(tmp_path: Path, text: str, why: str) -> None:
    secrets = Secrets({"DISCORD_TOKEN_COMMAND": script(tmp_path, text)}, tmp_path)
    with pytest.raises(Misconfigured) as failed:
        secrets["DISCORD_TOKEN"]
    told = f"{failed.value.message} {failed.value.hint}"
    assert failed.value.message.startswith("the command in DISCORD_TOKEN_COMMAND ") and why in told
    assert "hush" not in told and "hush" not in repr(failed.value.__cause__)


@pytest.mark.parametrize(
    ("command", "why"),
    [("/nowhere/vault read", "can't be started"), ("vault 'read", "a quotation mark"), ("   ", "is empty")],
)
def test_a_command_that_cannot_be_started_says_so(tmp_path: Path, command: str, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        Secrets({"DISCORD_TOKEN_COMMAND": command}, tmp_path)["DISCORD_TOKEN"]


def test_a_command_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_values, "COMMAND_S", 0.5)
    command = script(tmp_path, "import threading; threading.Event().wait(60)")
    with pytest.raises(Misconfigured, match="didn't end within"):
        Secrets({"DISCORD_TOKEN_COMMAND": command}, tmp_path)["DISCORD_TOKEN"]


def test_a_command_that_failed_is_not_run_again_for_a_while(tmp_path: Path) -> None:
    now = 0.0
    command = script(tmp_path, "import pathlib; open('ran', 'a').write('x'); print(pathlib.Path('vault').read_text())")
    secrets = Secrets({"POPCORN_ADMIN_TOKEN_COMMAND": command}, tmp_path, steady=lambda: now)
    for _ in range(3):
        with pytest.raises(Misconfigured, match=r"the command in POPCORN_ADMIN_TOKEN_COMMAND failed \(exit code 1\)"):
            secrets["POPCORN_ADMIN_TOKEN"]
    (tmp_path / "vault").write_text("the-token")
    with pytest.raises(Misconfigured) as told:
        secrets.again("POPCORN_ADMIN_TOKEN")
    assert "Run it by hand" in (told.value.hint or "") and (tmp_path / "ran").read_text() == "x"
    now = secret_values.FAILED_FOR_S
    assert secrets["POPCORN_ADMIN_TOKEN"].reveal() == "the-token" and (tmp_path / "ran").read_text() == "xx"
    (tmp_path / "vault").unlink()
    with pytest.raises(Misconfigured):
        secrets.again("POPCORN_ADMIN_TOKEN")
    assert secrets["POPCORN_ADMIN_TOKEN"].reveal() == "the-token", "what was read before stays"


def test_nobody_waits_for_the_command_of_another_secret(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slow")
    env = {"GITHUB_TOKEN_COMMAND": "cat slow", "POPCORN_ADMIN_TOKEN_COMMAND": "echo admin", "PATH": os.environ["PATH"]}
    secrets = Secrets(env, tmp_path)
    asks = threading.Thread(target=lambda: secrets["GITHUB_TOKEN"])
    asks.start()
    with (tmp_path / "slow").open("w") as slow:  # its command reads by now
        assert secrets["POPCORN_ADMIN_TOKEN"].reveal() == "admin" and asks.is_alive()
        slow.write("github")
    asks.join()
    rotates = threading.Thread(target=secrets.again, args=["GITHUB_TOKEN"])
    rotates.start()
    with (tmp_path / "slow").open("w") as slow:
        assert secrets["GITHUB_TOKEN"].reveal() == "github" and rotates.is_alive()
        slow.write("rotated")
    rotates.join()
    assert secrets["GITHUB_TOKEN"].reveal() == "rotated"


def test_a_helper_that_a_command_leaves_behind_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_values, "COMMAND_S", 10.0)
    env = {"GITHUB_TOKEN_COMMAND": "sh -c 'sleep 60 & echo $! >helper; echo token'", "PATH": os.environ["PATH"]}
    try:
        assert Secrets(env, tmp_path)["GITHUB_TOKEN"].reveal() == "token"
    finally:
        os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)


def test_a_reload_is_refused_while_the_command_of_a_secret_in_use_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kbslurm.toml").write_text("")
    (tmp_path / "token").write_text("first")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POPCORN_ADMIN_TOKEN_COMMAND", "cat token")
    monkeypatch.setenv("OIDC_CLIENT_SECRET_COMMAND", "false")
    config = settings.load(tmp_path / "kbslurm.toml")
    assert config.secret("POPCORN_ADMIN_TOKEN") == "first"
    (tmp_path / "token").rename(tmp_path / "away")
    with pytest.raises(Misconfigured, match="the command in POPCORN_ADMIN_TOKEN_COMMAND failed"):
        reloading.again(config)
    (tmp_path / "token").write_text("second")
    found, restart = reloading.again(config)
    assert (found.secret("POPCORN_ADMIN_TOKEN"), restart) == ("second", []), "one that nobody asked for isn't read"


def test_two_ways_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="both DISCORD_TOKEN and DISCORD_TOKEN_COMMAND are set"):
        settings.load(None, {"DISCORD_TOKEN": "x", "DISCORD_TOKEN_COMMAND": "true"}, cwd=tmp_path)


def test_a_rotated_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n")
    config = settings.load(None, {"GITHUB_TOKEN_FILE": "token"}, cwd=tmp_path)
    (tmp_path / "token").write_text("new\n")
    assert config.secret("GITHUB_TOKEN") == "old"
    assert config.secret_again("GITHUB_TOKEN") == "new" == config.secret("GITHUB_TOKEN")
    assert config.secret_again("MODAL_TOKEN_ID") is None


def test_a_check_reads_leniently_and_a_service_does_not(tmp_path: Path) -> None:
    env = {"GITHUB_TOKEN_FILE": "missing"}
    with pytest.raises(Misconfigured, match="GITHUB_TOKEN_FILE can't be read"):
        settings.load(None, env, cwd=tmp_path)
    config = settings.load(None, env, cwd=tmp_path, lenient=True)
    with pytest.raises(Misconfigured, match="GITHUB_TOKEN_FILE can't be read"):
        config.secret("GITHUB_TOKEN")


def test_places_of_a_kind_have_secrets_of_their_own(tmp_path: Path) -> None:
    assert for_place("RAY_{}_TOKEN", "gpu-east.2") == "RAY_GPU_EAST_2_TOKEN"
    env = {"RAY_GPU_EAST_TOKEN_COMMAND": "true", "RAY_WEST_KEY": "k", "RAY_TOKEN": "no place", "RAY_ADDRESS": "x"}
    assert named_in(env)[-2:] == ("RAY_GPU_EAST_TOKEN", "RAY_WEST_KEY")
    assert [is_secret(one) for one in (*env, "RAY_WEST_KEY_FILE")] == [True, True, False, False, True]
    config = settings.load(None, {**env, "RAY_GPU_EAST_TOKEN_COMMAND": "echo e"}, cwd=tmp_path)
    assert (config.secret_of("RAY_{}_TOKEN", "gpu-east"), config.secret_of("RAY_{}_KEY", "gpu-east")) == ("e", None)


def test_what_a_file_or_command_said_is_blanked_in_the_log(tmp_path: Path) -> None:
    url = "postgresql://u:pw-hush@h/d"
    secrets = Secrets({"GITHUB_TOKEN_COMMAND": "echo one-hush two-hush", "DATABASE_URL": url}, tmp_path)
    assert secrets["GITHUB_TOKEN"].reveal() == "one-hush two-hush"
    assert secrets["DATABASE_URL"].reveal() == url
    with overheard() as told:
        logs.set_up(stream=told, secrets=secret_values.known)
        logs.teller("daemon")("trouble", why="two-hush was rejected by h with pw-hush, at postgresql://u@h/d")
    assert "hush" not in told.getvalue() and "*** was rejected by h" in told.getvalue()
