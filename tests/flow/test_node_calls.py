"""What nodes call, by people who aren't nodes: refused in one way, at no cost."""

from __future__ import annotations

import secrets
from pathlib import Path

import httpx
import pytest

from kbslurm.api.node_keys import AGAIN_S, NodeKeys
from kbslurm.backends.ray import calls
from kbslurm.config import secret_values, settings
from kbslurm.domain.run import new_job_name
from tests.popcorn.served_api import served

KEY = secrets.token_bytes(32)
PLACE = '[ray.{}]\nurl = "http://127.0.0.1:8265"\nservice_url = "http://127.0.0.1:8000"\n'
NOBODY, SOMEBODY = "-", "a" * 32


def asked(url: str, place: str, verb: str, body: bytes, who: str, key: bytes = KEY) -> httpx.Response:
    name, digest = new_job_name(), calls.digest_of(body)
    mac = calls.mac(key, verb, place, name, who, digest)
    headers = {calls.WHO: who, calls.SUM: digest, calls.MAC: mac}
    return httpx.post(f"{url}/nodes/{place}/{name}/{verb}", content=body, headers=headers, timeout=10.0)


def test_strangers_are_refused_alike_and_run_no_command(database_url: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    env = {
        "RAY_GOOD_KEY_COMMAND": f"sh -c 'echo x >> {ran}; echo {KEY.hex()}'",
        "RAY_AWAY_KEY_COMMAND": f"sh -c 'echo x >> {ran}; exit 1'",
        "RAY_ODD_KEY": "zz",
    }
    toml = "".join(map(PLACE.format, ("good", "away", "odd", "none")))
    with served(database_url, tmp_path / "state", toml=toml, env=env) as api:
        before = ran.read_text()
        for _ in range(3):
            for place in ("good", "away", "odd", "none", "unknown"):
                said = asked(api.url, place, "claim", b'{"number": 1}', SOMEBODY, key=b"0" * 32)
                assert said.status_code == 401, (place, said.text)
        assert ran.read_text() == before == "x\n" * 2
        assert asked(api.url, "good", "claim", b'{"number": 1}', SOMEBODY).status_code == 403, "a node: no such job"


@pytest.mark.parametrize("who", ["", "w", "a" * 31, f"{'a' * 16} {'a' * 15}", "A" * 32])
def test_a_process_names_itself_in_one_way(database_url: str, tmp_path: Path, who: str) -> None:
    env = {"RAY_GOOD_KEY": KEY.hex()}
    with served(database_url, tmp_path / "state", toml=PLACE.format("good"), env=env) as api:
        assert asked(api.url, "good", "claim", b'{"number": 1}', who).status_code == 401


@pytest.mark.parametrize(
    "body", [b"{}", b'{"number": 0}', b'{"number": true}', b'{"number": "1"}', b'{"number": 9e99}']
)
def test_a_call_without_its_number_is_refused_in_a_sentence(database_url: str, tmp_path: Path, body: bytes) -> None:
    env = {"RAY_GOOD_KEY": KEY.hex()}
    with served(database_url, tmp_path / "state", toml=PLACE.format("good"), env=env) as api:
        for verb in ("claim", "beat"):
            said = asked(api.url, "good", verb, body, SOMEBODY)
            assert said.status_code in (400, 413, 422) and "number must be a positive integer" in said.text


def test_a_key_that_could_not_be_read_is_read_later_and_a_reload_reads_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_values, "FAILED_FOR_S", 0.0)  # as long as the keys' own wait, and by the real clock
    (tmp_path / "kbslurm.toml").write_text(PLACE.format("good"))
    key = tmp_path / "key"
    env = {"RAY_GOOD_KEY_COMMAND": f"cat {key}"}
    config = settings.load(env=env, cwd=tmp_path)
    now = 0.0
    keys = NodeKeys(lambda: now)
    keys.read(config)
    assert keys.of("good") is None
    key.write_text(KEY.hex())
    keys.read_missing(config)
    assert keys.of("good") is None, "not so often"
    now = AGAIN_S
    keys.read_missing(config)
    assert keys.of("good") == KEY
    (tmp_path / "kbslurm.toml").write_text("")
    keys.read(settings.load(env=env, cwd=tmp_path))
    assert keys.of("good") is None
