"""What people read while a cluster misbehaves: a competitor in the terminal and on the page, a host in `status`."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.cluster.inside.walk import PATIENCE_S, Walk
from tests.contract.backend_suite import REPOSITORY
from tests.flow.test_pages import browsing
from tests.popcorn.served_api import served

SERVICES = Path("/shared/faces")
TRANSCRIPTS = Path("/var/log/slurm")  # KBSLURM_TEST_KEEP_LOGS=1 keeps these


@dataclass(kw_only=True)
class Faces:
    """The faces of one service: ada's terminal and browser, and a host's terminal."""

    walk: Walk
    folder: Path
    browser: httpx.Client
    notes: list[str] = field(default_factory=list)

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a command of this service's."""
        told = {"DATABASE_URL": self.walk.url, "KBSLURM_CONFIG": str(self.folder / "kbslurm.toml")}
        return {**os.environ, **told, "KBSLURM_PERSON": "ada", "COLUMNS": "300"}

    def command(self, *words: str) -> str:
        """What it prints, on both streams."""
        done = subprocess.run(
            [sys.executable, "-m", "kbslurm", *words],
            env=self.environment,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def page(self, submission: int) -> str:
        """Its page's text, as one line."""
        found = self.browser.get(f"/s/{submission}")
        assert found.status_code == 200, found.text[:500]
        body = re.sub(r"(?s)<(script|style|head)\b.*?</\1>", " ", found.text)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())

    def look(self, submission: int = 1, *, status: bool = True) -> dict[str, str]:
        """Everything at one moment. It is also written down, for people to read."""
        seen = {
            "watch": self.command("watch", str(submission), "--once"),
            "why": self.command("why", "--submission", str(submission)),
            "page": self.page(submission),
        } | ({"status": self.command("status")} if status else {})
        self.notes += [f"## {name}\n{text}\n" for name, text in seen.items()]
        return seen

    def wait_said(self, sentence: str, submission: int = 1, *, status: bool = True) -> None:
        """Until watch says it; then every other face says the same."""

        def is_said() -> bool:
            said = self.command("watch", str(submission), "--once", "--json") + self.walk_reasons()
            return sentence in said

        self.walk.stage.wait_until(is_said, patience_s=PATIENCE_S)
        seen = self.look(submission, status=status)
        silent = [name for name, text in seen.items() if sentence not in " ".join(text.split())]
        assert not silent, f"{silent} don't say {sentence!r}: {json.dumps(seen, indent=1)}"

    def walk_reasons(self) -> str:
        """Why attempts wait, by the rows."""
        return "\n".join(one.reason for one in self.walk.stage.store.overview.waits())


@contextmanager
def faces(walk: Walk) -> Iterator[Faces]:
    """The walk's own service, with its API on loopback."""
    root = Path(walk.site.paths.shared_root)
    name = root.name if root.name != "root" else root.parent.name
    folder = SERVICES / name  # not in the shared root, which may be full
    folder.mkdir(parents=True)
    sites = f"[sites]\nuse = [{json.dumps(str(root / 'site.toml'))}]\n"
    with served(walk.url, folder, boards=False, toml=sites) as api:
        # The places are the daemon's: the API's own configuration has local slots, the commands' has none
        (folder / "kbslurm.toml").write_text(f"[daemon]\nstate_dir = {json.dumps(str(folder))}\n{sites}")
        walk.stage.person("ada")
        with browsing(api, "ada") as browser:
            found = Faces(walk=walk, folder=folder, browser=browser)
            try:
                yield found
            finally:
                (TRANSCRIPTS / f"faces-{name}.md").write_text("\n".join(found.notes))
