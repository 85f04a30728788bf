"""A repository on loopback that lends two runners to a service, and the backend by which that uses them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kbslurm.backends.github import repository_files
from kbslurm.backends.github.backend import GithubBackend
from kbslurm.config import shared_folders
from tests.fakes.github import REPOSITORY, TOKEN, FakeGithub


@dataclass(frozen=True, kw_only=True)
class Lent:
    """`env` is what a process of its own needs to use them, too."""

    fake: FakeGithub
    backend: GithubBackend
    env: dict[str, str]


@contextmanager
def lent_for(gpu: str, folder: Path) -> Iterator[Lent]:
    """Runners that have GPUs of this type."""
    key = secrets.token_bytes(32)
    fake = FakeGithub(
        folder, repository_files.files(shared_folders.eval_dir()), secrets_={"KBSLURM_RUN_KEY": key.hex()}, runners=2
    )
    try:
        backend = GithubBackend(
            REPOSITORY,
            {gpu: ["self-hosted", "h100"]},
            {gpu: 4},
            tokens=[TOKEN],
            key=key,
            eval_dir=shared_folders.eval_dir(),
            api_url=fake.url,
            min_isolation=0,
        )
        env = {"GITHUB_API_URL": fake.url, "GITHUB_TOKEN": TOKEN, "KBSLURM_RUN_KEY": key.hex()}
        try:
            yield Lent(fake=fake, backend=backend, env=env)
        finally:
            backend.close()
    finally:
        fake.close()
