"""Where a place's attempts are: whatever decides that is in its home, so that a reload moves none of them meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm import wiring
from kbslurm.config import settings
from kbslurm.flow.place import Place

SITE = """\
name = "della"
{scheduler}
[submit]
{submit}
[paths]
shared_root = "{root}"
[gpus.H100]
request = "--gres=gpu:h100:1"
image = "/shared/cuda.sif"
max_open = {most}
"""
TOML = """\
[sites]
use = ["della"]
[github]
repository = "{repository}"
branch = "{branch}"
gpus = {{ T4 = ["gpu-t4"] }}
[modal]
environment = "{environment}"
app = "{app}"
[modal.gpus.L4]
[ray.pool]
url = "{ray}"
service_url = "https://kernels.example.edu"
gpus.A100 = {{ num_gpus = 1, slots = 2 }}
"""
SAID = {
    "scheduler": "[slurm]", "submit": 'via = "ssh"\nhost = "login"', "root": "/shared", "most": "8",
    "repository": "o/r", "branch": "main", "environment": "prod", "app": "kbslurm",
    "ray": "http://head:8265",
}  # fmt: skip
SECRETS = {
    "GITHUB_TOKEN": "ghp_a", "KBSLURM_RUN_KEY": "11" * 32, "MODAL_TOKEN_ID": "ak-1", "MODAL_TOKEN_SECRET": "as-1",
    "RAY_POOL_TOKEN": "t", "RAY_POOL_KEY": "33" * 32,
}  # fmt: skip


def places(folder: Path, **changed: str) -> dict[str, Place]:
    """The places of this configuration, by kind."""
    said = {**SAID, **changed}
    (folder / "site-configs").mkdir(exist_ok=True)
    (folder / "site-configs" / "della.toml").write_text(SITE.format(**said))
    (folder / "kbslurm.toml").write_text(TOML.format(**said))
    env = {"HOME": str(folder), **{name: changed.get(name, secret) for name, secret in SECRETS.items()}}
    config = settings.load(folder / "kbslurm.toml", env, cwd=folder)
    return {place.kind: place for place in wiring.places(config)}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("slurm", "scheduler", '[slurm]\ncluster = "other"'),
        ("slurm", "scheduler", '[slurm]\nconf = "/etc/slurm-b/slurm.conf"'),
        ("slurm", "submit", 'via = "ssh"\nhost = "login2"'),
        ("slurm", "submit", 'via = "ssh"\nhost = "login"\nport = 2222'),
        ("slurm", "submit", 'via = "ssh"\nhost = "login"\nuser = "else"'),
        ("slurm", "submit", 'via = "rest"\nhost = "login"\nurl = "https://login:6820"'),
        ("slurm", "submit", 'via = "local"\nhost = "login"'),
        ("slurm", "root", "/elsewhere"),
        ("github", "repository", "o/another"),
        ("github", "KBSLURM_RUN_KEY", "22" * 32),
        ("modal", "environment", "dev"),
        ("modal", "app", "another"),
        ("modal", "MODAL_TOKEN_ID", "ak-2"),
        ("ray", "ray", "http://another:8265"),
        ("ray", "RAY_POOL_KEY", "44" * 32),
    ],
)
def test_what_decides_where_attempts_are_moves_the_place(tmp_path: Path, kind: str, key: str, value: str) -> None:
    before, after = places(tmp_path), places(tmp_path, **{key: value})
    assert [one for one in before if before[one].home != after[one].home] == [kind]
    assert before[kind].settings != after[kind].settings


def test_another_address_of_slurmrestd_moves_the_place(tmp_path: Path) -> None:
    rest = 'via = "rest"\nurl = "https://{}:6820"\nuser = "kb"'.format
    assert places(tmp_path, submit=rest("a"))["slurm"].home != places(tmp_path, submit=rest("b"))["slurm"].home


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("slurm", "most", "9"),
        ("slurm", "submit", 'via = "ssh"\nhost = "login"\nidentity = "/home/kb/.ssh/new"'),
        ("github", "branch", "next"),
        ("github", "GITHUB_TOKEN", "ghp_rotated"),
        ("modal", "MODAL_TOKEN_SECRET", "as-2"),
        ("ray", "RAY_POOL_TOKEN", "rotated"),
    ],
)
def test_what_does_not_is_taken_at_once(tmp_path: Path, kind: str, key: str, value: str) -> None:
    before, after = places(tmp_path), places(tmp_path, **{key: value})
    assert [one for one in before if before[one].settings != after[one].settings] == [kind]
    assert before[kind].home == after[kind].home


def test_a_home_shows_no_key_and_the_same_key_written_otherwise_is_the_same(tmp_path: Path) -> None:
    before, after = places(tmp_path, KBSLURM_RUN_KEY="ab" * 32), places(tmp_path, KBSLURM_RUN_KEY="AB" * 32)
    assert before["github"].home == after["github"].home
    assert "ab" * 32 not in before["github"].home and "ak-1" not in before["modal"].home
