"""The API as it is served, with one call more that answers a constant: a process of its own for `tests.bench.api`.

`python -m tests.bench._api_served DATABASE_URL FOLDER CONSTANT_FILE` prints its address, and ends with its input.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from fastapi import APIRouter

from kbslurm.api.answers import Ascii
from kbslurm.api.app import create_app
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Number
from kbslurm.api.server import Serving, context_of, settle
from kbslurm.config import settings
from kbslurm.store.postgres import PostgresStore


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    url, folder, constant = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    file = folder / "kbslurm.toml"
    file.write_text(f"[daemon]\nstate_dir = '{folder}'\n[daemon.local]\nslots = {{ H100 = 8 }}\n")
    told = json.loads(constant.read_text())
    router = APIRouter()

    @router.get("/constant/{submission_id}")
    def answer(submission_id: Number, sender: Sender) -> Ascii:
        return Ascii(told)

    with PostgresStore(url) as store:
        context = context_of(settings.load(file, {"DATABASE_URL": url}, cwd=folder), store)
        with Serving(context, host="127.0.0.1", port=0, app=create_app(context, more=[router])) as serving:
            settle()
            print(serving.url, flush=True)
            sys.stdin.read()


main()
