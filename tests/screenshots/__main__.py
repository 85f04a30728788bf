"""python -m tests.screenshots: play the demo, let more people submit to its service, and take pictures of its pages."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

from PIL import Image

from kbslurm.api.sessions import SESSION
from kbslurm.cli.operator import demo, demo_page
from kbslurm.domain.run import SubmissionId
from kbslurm.store.postgres import PostgresStore
from tests.flow import pinned_fonts
from tests.flow.chromium import THEMES, Chromium, Theme, started
from tests.popcorn.client import Popcorn
from tests.screenshots import terminal
from tests.screenshots.kernels import KERNELS, source

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
BOARD, GPU = "transpose", "H100"
SHOWN = "ada"  # whose submission is shown
CAP = 150_000  # bytes of a picture
WIDTH, HEIGHT = 1100, 760
WAITS_S = 600.0


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    options.add_argument("--json", action="store_true", help="the pictures and their sizes as JSON")
    wants_json = options.parse_args().json
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="kbslurm-screenshots-") as name:
        place = Path(name)
        for picture, data in pictures(place):
            PICTURES.mkdir(parents=True, exist_ok=True)
            (PICTURES / picture).write_bytes(data)
            sizes[picture] = len(data)
            tell(f"{picture}: {len(data) / 1000:.0f} KB")
    if wants_json:
        print(json.dumps(sizes))
    large = [picture for picture, size in sizes.items() if size > CAP]
    if large:
        tell(f"over {CAP // 1000} KB: {', '.join(large)}. Show less of the page, or with fewer colours.")
    return 1 if large else 0


def pictures(place: Path) -> Iterator[tuple[str, bytes]]:
    """Each picture's name and contents."""
    folder = place / "demo"
    tell("playing the demo")
    kbslurm = Path(sys.executable).parent / "kbslurm"
    env = {"KBSLURM_DEMO_DIR": str(folder)}
    output = terminal.said([str(kbslurm), "demo", "--once", "--no-next"], ROOT, env)
    for theme in THEMES:
        yield f"terminal-{theme}.svg", terminal.as_svg("kbslurm demo --once", output, is_dark=theme == "dark").encode()
    with demo._served(folder, None) as (config, store), demo_page.shown(config, store) as url:
        fill(store, url)
        number = newest(store, SHOWN)
        paths = {"board": (f"/board/{BOARD}/{GPU}", ""), "submission": (f"/s/{number}", SHOWN)}
        with browser(place) as chromium:
            for name, (path, by) in paths.items():
                for theme in THEMES:
                    yield f"{name}-{theme}.png", shot(chromium, store, url, path, by, theme)


def fill(store: PostgresStore, url: str) -> None:
    """Everybody submits once, and has a verdict."""
    numbers = []
    for person in KERNELS:
        who = store.people.ensure(person, by="screenshots")
        token = store.tokens.issue(who.id, device="screenshots", now=datetime.now(UTC))
        client = Popcorn(url=url, cli_id=token)
        numbers.append(client.submit(BOARD, GPU, "leaderboard", f"{person}.py", source(person)))
        client.hang_up()
    until, told = time.monotonic() + WAITS_S, -1
    while (done := sum(store.submissions.get(SubmissionId(one)).is_done for one in numbers)) < len(numbers):
        if time.monotonic() > until:
            raise SystemExit(f"not everybody has a verdict within {WAITS_S:.0f} s. Try again on a quieter machine.")
        if done != told:
            tell(f"measuring {len(numbers)} more submissions: {done} done")
        told = done
        store.events.wait(5)


def newest(store: PostgresStore, person: str) -> SubmissionId:
    return store.submissions.newest(person=store.people.ensure(person).id, limit=1)[0].id


@contextmanager
def browser(place: Path) -> Iterator[Chromium]:
    home = place / "chromium"
    home.mkdir()
    env: Mapping[str, str] = {**pinned_fonts.environment(place / "fonts"), "TZ": "UTC", "LANG": "C.UTF-8"}
    with started(home, env=env) as found:
        yield found


def shot(chromium: Chromium, store: PostgresStore, url: str, path: str, by: str, theme: Theme) -> bytes:
    """The upper part of a page, as this person sees it."""
    chromium.view(WIDTH, theme=theme, height=HEIGHT)
    chromium.open(f"{url}/login")
    chromium.call("DELETE", "/cookie")
    if by:
        now = datetime.now(UTC)
        session = store.tokens.issue(
            store.people.ensure(by).id, kind="web", expires_at=now + timedelta(hours=1), now=now
        )
        cookie = {"name": SESSION, "value": session, "path": "/", "httpOnly": True, "sameSite": "Lax"}
        chromium.call("POST", "/cookie", cookie=cookie)
    chromium.open(url + path)
    found = BytesIO()
    whole = Path(os.environ.get("TMPDIR") or tempfile.gettempdir(), f"kbslurm-shot-{os.getpid()}.png")
    chromium.picture(whole)
    try:
        Image.open(whole).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(found, "PNG", optimize=True)
    finally:
        whole.unlink()
    return found.getvalue()


def tell(text: str) -> None:
    print(f"· {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
