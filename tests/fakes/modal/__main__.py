"""`python -m tests.fakes.modal --app FOLDER [--port P]`: the platform by itself, until it is told to end.

FOLDER is what `kbslurm modal deploy --to FOLDER` wrote. The first line that is printed is one JSON object: the address
for MODAL_SERVER_URL, that for POST /faults, and the token that is taken.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from tests.fakes.modal import FakeModal


def main() -> None:
    parser = argparse.ArgumentParser(description="Modal on loopback.")
    parser.add_argument("--app", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())
    with FakeModal(given.app.absolute(), port=given.port) as fake:
        told = {"url": fake.url, "faults": f"{fake.blob_url}/faults", "token": list(fake.token)}
        print(json.dumps(told), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
