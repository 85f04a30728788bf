"""A reload while a secret's command fails or hangs: the earlier configuration holds, and every token works on."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import httpx
import pytest

from kbslurm.api import server
from kbslurm.config import secret_values, settings
from kbslurm.config.secret_values import Secrets
from kbslurm.errors import Misconfigured
from tests.flow.stage import overheard
from tests.popcorn.served_api import served


@pytest.mark.parametrize("down", ["exit 1", "exec sleep 60"])
def test_the_hosts_token_works_on_while_its_command_does_not(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, down: str
) -> None:
    monkeypatch.setattr(secret_values, "COMMAND_S", 0.5)
    command = tmp_path / "tok.sh"
    command.write_text(f"#!/bin/sh\n[ -e {tmp_path}/down ] && {down}\necho admin-token-1\n")
    command.chmod(0o755)
    env = {"DATABASE_URL": database_url, "POPCORN_ADMIN_TOKEN_COMMAND": str(command), "PATH": "/usr/bin:/bin"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with served(database_url, tmp_path / "state", admin=None) as api:
        api.context.config = dataclasses.replace(api.context.config, secrets=Secrets(env, tmp_path))

        def status(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.get(f"{api.url}/admin/overview", headers=headers, timeout=60).status_code

        assert status("admin-token-1") == 200
        (tmp_path / "down").touch()
        with overheard(as_json=True) as told:
            server._reload(api.context)
        assert "the command in POPCORN_ADMIN_TOKEN_COMMAND" in told.getvalue() and "wasn't reloaded" in told.getvalue()
        assert [status(token) for token in ("junk", "admin-token-1")] == [401, 200]
        (tmp_path / "down").unlink()
        command.write_text("#!/bin/sh\necho admin-token-2\n")
        server._reload(api.context)
        assert [status(token) for token in ("admin-token-1", "admin-token-2")] == [401, 200]


def test_an_api_says_at_its_start_that_the_hosts_token_cannot_be_read(tmp_path: Path, database_url: str) -> None:
    env = {"DATABASE_URL": database_url, "POPCORN_ADMIN_TOKEN_COMMAND": "false", "PATH": "/usr/bin:/bin"}
    (tmp_path / "kbslurm.toml").write_text("[server]\nlisten = '127.0.0.1:0'\n")
    config = settings.load(tmp_path / "kbslurm.toml", env, cwd=tmp_path)
    over = threading.Event()
    over.set()
    with overheard(), pytest.raises(Misconfigured, match="the command in POPCORN_ADMIN_TOKEN_COMMAND failed"):
        server.run_api(config, over)
