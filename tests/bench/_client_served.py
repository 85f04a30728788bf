"""A service with two slots and a harness that is over at once: a process of its own for `tests.bench.client`.

`python -m tests.bench._client_served DATABASE_URL FOLDER` prints its address, and ends with its input.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kbslurm.api.server import Serving, context_of, settle
from kbslurm.config import settings
from kbslurm.daemon.loop import Daemon
from kbslurm.store.postgres import PostgresStore
from tests.chaos.zygote import GPU, place
from tests.flow.stage import running

SLOTS = 2


def main() -> None:
    url, folder = sys.argv[1], Path(sys.argv[2])
    file = folder / "kbslurm.toml"
    file.write_text(f"[daemon]\nstate_dir = '{folder}'\n[daemon.local]\nslots = {{ {GPU} = {SLOTS} }}\n")
    with PostgresStore(url) as store, PostgresStore(url) as own:
        context = context_of(settings.load(file, {"DATABASE_URL": url}, cwd=folder), store)
        with Serving(context, host="127.0.0.1", port=0) as serving, running(Daemon(own, [place(folder, SLOTS)])):
            settle()
            print(serving.url, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
