"""`python -m tests.fakes.github --port P --dir D`: one repository with workflow and harness, until it is told to end.

The first line on standard output is what kbslurm needs to use it, as one JSON object of environment variables, with the
repository's name beside them. `POST /_fake` with {"hold": true} keeps runs from starting, {"private": false} opens it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import tempfile
import threading
from pathlib import Path

from kbslurm.backends.github import repository_files
from kbslurm.config import shared_folders
from tests.fakes.github import REPOSITORY, TOKEN, FakeGithub


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.fakes.github", description="GitHub on loopback, for one repository.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--dir", type=Path, help="where its runners work (default: a temporary folder)")
    parser.add_argument(
        "--eval-dir", type=Path, default=shared_folders.eval_dir(), help="the harness that the repository holds"
    )
    parser.add_argument("--runners", type=int, default=2, help="how many jobs at once")
    parser.add_argument("--label", action="append", default=[], help="one more label of its runners")
    told = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    key = os.environ.get("KBSLURM_RUN_KEY") or secrets.token_hex(32)
    with tempfile.TemporaryDirectory(prefix="kb-github-") as own:
        fake = FakeGithub(
            told.dir or Path(own),
            repository_files.files(told.eval_dir),
            secrets_={"KBSLURM_RUN_KEY": key},
            port=told.port,
            runners=told.runners,
            labels=("ubuntu-latest", "self-hosted", "h100", "cpu", *told.label),
        )
        env = {"GITHUB_API_URL": fake.url, "GITHUB_TOKEN": TOKEN, "KBSLURM_RUN_KEY": key}
        print(json.dumps({"env": env, "repository": REPOSITORY}), flush=True)
        ended.wait()
        fake.close()


if __name__ == "__main__":
    main()
