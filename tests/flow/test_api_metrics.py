"""What the API tells Prometheus, scraped from a real server: what is counted, who may ask, what can't get into it."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from kbslurm.api.server import run_api
from kbslurm.config import settings
from tests.databases import Server
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ADMIN, GOOD, served

BOARD = "transpose"
Sample = tuple[str, frozenset[tuple[str, str]]]


def scraped(text: str) -> dict[Sample, float]:
    """Every sample of the exposition format; a line that is none fails."""
    found: dict[Sample, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"(\w+)(?:{(.*)})? (\S+)", line)
            assert match, line
            labels = frozenset(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
            found[match[1], labels] = float(match[3])
    return found


def value(found: dict[Sample, float], name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


def test_what_is_asked_is_counted_by_route_and_tells_nobodys_name(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path, clock=HandClock()) as api:
        ada, host = (
            api.client("zuzanna"),
            httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60),
        )
        with host:
            before = scraped(host.get("/metrics").text)
            assert value(before, "kbslurm_api_database_up") == 1 and value(before, "kbslurm_api_daemon_leads") == 0
            api.store.settings.set_accepts_jobs(True, by="host", now=api.now)
            sent = {"file": ("k.py", GOOD)}
            told = {"X-Popcorn-Cli-Id": ada.cli_id or ""}
            path = f"/submission/{BOARD}/H100/test"
            for _ in range(2):
                assert host.post(path, files=sent, headers=told).status_code == 202
            assert host.post(path, files=sent).status_code == 400
            assert host.post(path, files={"file": ("k.py", b"x" * 1_100_000)}, headers=told).status_code == 413
            assert host.post("/submission/planted-board/H100/leaderboard", files=sent, headers=told).status_code == 404
            assert host.post(f"/submission/{BOARD}/H100/planted-mode", files=sent, headers=told).status_code == 400
            for number in range(30):
                host.get(f"/planted-{number}/x/y/z")
                host.get(f"/gpus/planted-{number}")
                host.request(f"PLANTED{number}", "/health")
            follower = host.stream("GET", "/events?since_token=now")
            with follower as feed:
                assert feed.status_code == 200
                during = scraped(host.get("/metrics").text)
            text = host.get("/metrics").text
    after = scraped(text)
    submit = "/submission/{leaderboard}/{gpu}/{mode}"
    requests = "kbslurm_api_requests_total"
    assert value(after, requests, method="POST", route=submit, status="202") == 2
    assert value(after, requests, method="POST", route=submit, status="413") == 1
    assert value(after, requests, method="GET", route="/gpus/{leaderboard}", status="404") == 30
    assert value(after, requests, method="GET", route="unmatched", status="404") == 30
    assert value(after, requests, method="other", route="/health", status="405") == 30
    assert value(after, requests, method="GET", route="/metrics", status="200") == 2
    answers = sum(
        number for (name, labels), number in after.items() if name == requests and ("route", submit) in labels
    )
    assert value(after, "kbslurm_api_request_seconds_count", route=submit) == answers > 3
    assert value(after, "kbslurm_api_request_seconds_bucket", route=submit, le="+Inf") == answers
    submissions = "kbslurm_api_submissions_total"
    assert value(before, submissions, mode="test", came="accepted") == 0
    assert value(after, submissions, mode="test", came="accepted") == 2
    assert value(after, submissions, mode="test", came="unauthenticated") == 1
    assert value(after, submissions, mode="test", came="too_large") == 1
    assert value(after, submissions, mode="leaderboard", came="unknown") == 1
    assert value(after, submissions, mode="other", came="invalid") == 1
    assert value(during, "kbslurm_api_watchers", of="everything") == 1
    for secret in ("zuzanna", "planted", "PLANTED", ADMIN, ada.cli_id or "?"):
        assert secret not in text
    assert len(after) < 600


def test_only_hosts_scrape_the_face_that_everybody_reaches(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path, clock=HandClock()) as api:
        hana, ada = api.client("hana", role="staff"), api.client("ada")
        for bearer, status in ((None, 401), ("guess", 401), (ada.cli_id, 401), (hana.cli_id, 200), (ADMIN, 200)):
            # However local a request looks: behind a proxy all of them do.
            headers = {"X-Forwarded-For": "127.0.0.1", **({"Authorization": f"Bearer {bearer}"} if bearer else {})}
            answer = httpx.get(f"{api.url}/metrics", headers=headers, timeout=60)
            assert answer.status_code == status, bearer
            assert ("kbslurm_api_requests_total" in answer.text) == (status == 200)
    with served(database_url, tmp_path, admin=None, clock=HandClock(), boards=False) as shut:
        headers = {"Authorization": f"Bearer {hana.cli_id}"}
        assert httpx.get(f"{shut.url}/metrics", headers=headers, timeout=60).status_code == 401


def test_an_address_of_its_own_asks_for_no_token_and_tells_when_the_database_is_away(
    database_url: str, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbslurm.api.metrics.LOOK_EVERY_S", 0.0)
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    file = tmp_path / "kbslurm.toml"
    file.write_text(f"[server]\nlisten = '127.0.0.1:{ports[0]}'\nmetrics = '127.0.0.1:{ports[1]}'\n")
    stop = threading.Event()
    kept = settings.load(file, {"DATABASE_URL": database_url}, cwd=tmp_path)
    serving = threading.Thread(target=run_api, args=(kept, stop))
    serving.start()
    try:
        page = f"http://127.0.0.1:{ports[1]}/metrics"
        until = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{ports[0]}/health", timeout=60)
                found = scraped(httpx.get(page, timeout=60).text)
                break
            except httpx.TransportError:
                assert time.monotonic() < until
                time.sleep(0.05)
        assert value(found, "kbslurm_api_database_up") == 1
        assert value(found, "kbslurm_api_requests_total", method="GET", route="/health", status="200") >= 1
        postgres_server.drop(database_url)
        asked = httpx.get(f"http://127.0.0.1:{ports[0]}/leaderboards", timeout=60)
        found = scraped(httpx.get(page, timeout=60).text)
        assert asked.status_code >= 500 and value(found, "kbslurm_api_database_up") == 0
        assert sum(value(found, "kbslurm_api_trouble_total", kind=k) for k in ("database", "misconfigured")) >= 1
        assert value(found, "kbslurm_api_trouble_total", kind="bug") == 0
    finally:
        stop.set()
        serving.join(60)
    assert not serving.is_alive()
    with pytest.raises(httpx.TransportError):
        httpx.get(page, timeout=60)
