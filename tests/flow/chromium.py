"""A real Chromium, driven through ChromeDriver."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import httpx

from kbslurm.api.sessions import SESSION

PATIENCE_S = 120.0
WIDTHS = (390, 768, 1280, 1920)  # a phone, a tablet, a desk, a large screen
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")


@dataclass
class Chromium:
    """One browser session, by the WebDriver protocol."""

    http: httpx.Client
    session: str

    def call(self, method: str, path: str, **body: Any) -> Any:
        answer = self.http.request(method, f"/session/{self.session}{path}", json=body if method == "POST" else None)
        assert answer.status_code == 200, answer.text
        return answer.json()["value"]

    def open(self, url: str) -> None:
        self.call("POST", "/url", url=url)

    def ask(self, script: str) -> Any:
        return self.call("POST", "/execute/sync", script=script, args=[])

    def sign_in(self, session: str) -> None:
        """Whose session this is, is at the browser from now on. It has to be at one of the service's pages."""
        cookie = {"name": SESSION, "value": session, "path": "/", "httpOnly": True, "sameSite": "Lax"}
        self.call("POST", "/cookie", cookie=cookie)

    def find(self, css: str) -> str:
        found = self.call("POST", "/element", using="css selector", value=css)
        return str(next(iter(found.values())))

    def click(self, css: str) -> None:
        self.call("POST", f"/element/{self.find(css)}/click")

    def write(self, css: str, text: str) -> None:
        self.call("POST", f"/element/{self.find(css)}/value", text=text)

    def title(self) -> str:
        return str(self.call("GET", "/title"))

    def complaints(self) -> list[str]:
        return [str(line["message"]) for line in self.call("POST", "/se/log", type="browser")]

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def devtools(self, command: str, **told: Any) -> Any:
        """A command of the browser's own protocol."""
        return self.call("POST", "/goog/cdp/execute", cmd=command, params=told)

    def view(self, width: int, *, theme: Theme = "light", height: int = 900) -> None:
        """From now on the window is that wide, and people prefer that theme."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.devtools("Emulation.setScrollbarsHidden", hidden=True)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def scripts(self, allowed: bool) -> None:
        """Whether pages may run scripts from now on."""
        self.devtools("Emulation.setScriptExecutionDisabled", value=not allowed)

    def whole_picture(self, file: Path) -> None:
        """The page from top to bottom, at the width that `view` set."""
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def barriers(self) -> list[str]:
        """What keeps people out of this page, as axe sees it: the rule, and where it is broken."""
        axe = "" if self.ask("return 'axe' in window") else _axe()
        run = "axe.run({resultTypes: ['violations']}).then((told) => done(told.violations))"
        script = f"const done = arguments[0]; {axe}; {run}"
        found = self.call("POST", "/execute/async", script=script, args=[])
        return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


@cache
def _axe() -> str:
    return resources.files("axe_core_python").joinpath("axe.min.js").read_text()


@contextmanager
def started(place: Path, *, without: Sequence[str] = (), env: Mapping[str, str] = {}) -> Iterator[Chromium]:
    """A browser of its own, with its profile in this folder. `without`: flags that ChromeDriver would give it; `env`:
    what its environment has beside ours."""
    browser = shutil.which("chromium")
    assert browser is not None
    log = place / "chromedriver.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(place), **env},
            start_new_session=True,
        )
    try:
        port = until(lambda: re.search(r"successfully on port (\d+)", log.read_text()), "ChromeDriver listens")[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, trust_env=False) as http:
            yield from _session(http, browser, place, without)
    finally:
        # The driver leads a group of its own: its browser ends with it.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _session(http: httpx.Client, browser: str, place: Path, without: Sequence[str]) -> Iterator[Chromium]:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    flags += [f"--user-data-dir={place / 'profile'}", "--window-size=1000,900"]
    options = {"args": flags, "binary": browser, "excludeSwitches": list(without)}
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    answer = http.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
    assert answer.status_code == 200, answer.text
    found = Chromium(http, answer.json()["value"]["sessionId"])
    try:
        yield found
    finally:
        http.delete(f"/session/{found.session}")


def until(look: Callable[[], Any], what: str) -> Any:
    """The first thing that `look` finds; the time-out is only for a machine that is stuck."""
    ends_at = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < ends_at, f"in vain: {what}"
        time.sleep(0.1)
    return found
