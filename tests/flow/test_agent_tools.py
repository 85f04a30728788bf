"""`kbslurm mcp` by the protocol's own client: over standard input and output, and over HTTP on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from kbslurm.domain import next_steps
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm_eval.shared import wire
from tests.command_line import CommandLine
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.popcorn.served_api import GOOD, TRANSPOSE, WRONG, ServedApi, served, working

TOOLS = ["boards", "problem", "try", "submit", "status", "profile", "history"]
HIDDEN = "planted-hidden-spec-3e0b"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service") as built:
        yield built


@pytest.fixture
def still(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


def environment(api: ServedApi, home: Path, name: str = "ada") -> dict[str, str]:
    home.mkdir(exist_ok=True)
    token = api.store.tokens.issue(api.store.people.ensure(name).id, now=api.now)
    env = {name: value for name, value in os.environ.items() if not name.startswith("KBSLURM_")}
    return {**env, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "KBSLURM_URL": api.url, "KBSLURM_TOKEN": token}


@asynccontextmanager
async def by_stdio(env: dict[str, str]) -> AsyncIterator[ClientSession]:
    asked = StdioServerParameters(command=sys.executable, args=["-m", "kbslurm", "mcp"], env=env)
    async with stdio_client(asked) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        yield session


async def answer(session: ClientSession, tool: str, **asked: Any) -> dict[str, Any]:
    found = await session.call_tool(tool, asked)
    assert not found.isError, found.content
    assert found.structuredContent is not None
    return found.structuredContent


def sentence(found: CallToolResult) -> str:
    assert found.isError
    (content,) = found.content
    assert isinstance(content, TextContent) and "Traceback" not in content.text
    return content.text


def judged(api: ServedApi, mode: wire.Mode, **report: Any) -> int:
    receipt = accept(
        api.store.intake, api.store.people.ensure("ada").id, "transpose", "k.py", GOOD, mode, ["H100"], api.now
    )
    capacity = {"puppet": Puppet(slots={"H100": 9}).capacity()}
    attempt = claim(api.store.queue, free_slots(capacity, api.store.attempts.open()), api.now)
    assert attempt is not None
    score(api.store, attempt, sealed_report(api.store.attempts.work(attempt.id), **report), api.now)
    return receipt.submission_id


def test_an_agent_goes_from_the_boards_to_a_rank(api: ServedApi, tmp_path: Path) -> None:
    env = environment(api, tmp_path / "home")
    told: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def agent() -> None:
        async with by_stdio(env) as session:
            listed = (await session.list_tools()).tools
            assert [tool.name for tool in listed] == TOOLS
            assert all(tool.outputSchema and tool.description for tool in listed)
            assert {tool.name for tool in listed if tool.annotations and tool.annotations.readOnlyHint} == {
                "boards", "problem", "status", "profile", "history",
            }  # fmt: skip
            (board,) = (await answer(session, "boards"))["boards"]
            assert board["name"] == "transpose" and board["gpus"] == ["H100", "A100"] and board["is_open"]
            problem = await answer(session, "problem", board="Transpose")
            assert problem["tests"] and "def custom_kernel" in problem["templates"]["Python"]
            assert "template" in problem["next"][0]

            source = WRONG.decode()
            tried = await answer(session, "try", problem=str(TRANSPOSE), source=source)
            assert tried["verdict"]["verdict"] == "wrong" and tried["verdict"]["failures"][0]["message"]
            wrong = await answer(session, "submit", board="transpose", source=source, gpus=["H100"])
            assert wrong["done"] and wrong["runs"][0]["verdict"] == "wrong"
            assert wrong["runs"][0]["failures"][0]["phase"] == "test" and "Read the failures" in wrong["next"][0]

            good = GOOD.decode()
            tried = await answer(session, "try", problem=str(TRANSPOSE), source=good)
            assert tried["verdict"]["verdict"] == "passed" and "Submit it" in tried["next"][0]
            asked = {"board": "transpose", "source": good, "gpus": ["H100"], "mode": "leaderboard"}
            found = await session.call_tool("submit", asked, progress_callback=heard)
            ranked = found.structuredContent
            assert ranked is not None and ranked["runs"][0]["verdict"] == "passed" and ranked["runs"][0]["time_s"] > 0
            assert ranked["places"][0].startswith("H100: rank 1 of 1"), ranked["places"]
            status = await answer(session, "status", submission=ranked["submission"])
            assert status["places"] == ranked["places"]
            assert status["runs"] == ranked["runs"]
            lines = (await answer(session, "history"))["submissions"]
            assert [line["submission"] for line in lines] == [ranked["submission"], wrong["submission"]]

    with working(api, tmp_path):
        anyio.run(agent)
    assert told, "it says how far it is"
    with api.store._pool.statement() as connection:
        assert {row["via"] for row in connection.execute("SELECT via FROM submission")} == {"agent"}


def test_what_is_refused_is_one_sentence_and_the_person_s_limits_hold(still: ServedApi, tmp_path: Path) -> None:
    still.store.limits.set_rate("transpose", "test", 1, by="test", now=still.now)
    env = environment(still, tmp_path / "home")
    (tmp_path / "empty").mkdir()

    async def agent() -> None:
        async with by_stdio(env) as session:
            asked = {"board": "transpose", "source": GOOD.decode(), "gpus": ["H100"], "wait_s": 0}
            waiting = await answer(session, "submit", **asked)
            assert not waiting["done"] and "Wait" in waiting["next"][0] and waiting["runs"][0]["verdict"] is None
            limited = sentence(await session.call_tool("submit", asked))
            assert "test submissions to transpose per hour: 1 of 1 used" in limited
            assert "there is no board 'nowhere'" in sentence(await session.call_tool("problem", {"board": "nowhere"}))
            not_a_profile = sentence(await session.call_tool("profile", {"submission": waiting["submission"]}))
            assert "is a test, not a profile" in not_a_profile and "mode profile" in not_a_profile
            assert "no submission '999'" in sentence(await session.call_tool("status", {"submission": 999}))
            untried = await session.call_tool("try", {"problem": str(tmp_path / "empty"), "source": "x"})
            assert "task.yml" in sentence(untried)

    anyio.run(agent)


def test_a_profile_says_what_limits_it_and_nothing_is_told_of_hidden_cases(still: ServedApi, tmp_path: Path) -> None:
    digest = wire.ProfileDigest(
        tool="ncu",
        benchmark=0,
        spec="size: 64",
        limits=["limited by DRAM bandwidth: 91 % of the peak"],
        hints=["load each element once"],
        kernels=[
            wire.ProfiledKernel(name="transpose", calls=2, total_ns=4e6, share=0.9, metrics={"occupancy_pct": 50.0})
        ],
    )
    number = judged(still, "profile", digests=[digest])
    hidden = judged(
        still,
        "leaderboard",
        verdict="wrong",
        tests=[wire.TestResult(phase="hidden", index=0, spec=HIDDEN, status="fail", message="")],
    )
    env = environment(still, tmp_path / "home")

    async def agent() -> None:
        async with by_stdio(env) as session:
            told = await answer(session, "profile", submission=number)
            assert told["next"] == ["load each element once"]
            (one,) = told["profiles"]
            assert one["limits"] == ["limited by DRAM bandwidth: 91 % of the peak"]
            assert one["kernels"][0] == {
                "name": "transpose", "calls": 2, "mean_s": 0.002, "share": 0.9, "occupancy_pct": 50.0,
            }  # fmt: skip
            assert HIDDEN not in str(await session.call_tool("status", {"submission": hidden}))

    anyio.run(agent)


def test_over_http_only_whoever_has_the_secret(still: ServedApi, tmp_path: Path) -> None:
    env = environment(still, tmp_path / "home")
    argv = [sys.executable, "-m", "kbslurm", "mcp", "--http", "0"]
    serving = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    try:
        url, header = serving.stdout.readline().strip(), serving.stdout.readline().strip()
        assert (
            url.startswith("http://127.0.0.1:") and url.endswith("/mcp") and header.startswith("Authorization: Bearer ")
        )
        name, _, value = header.partition(": ")

        async def agent() -> None:
            async with (
                httpx.AsyncClient(headers={name: value}, timeout=60) as http,
                streamable_http_client(url, http_client=http) as (reading, writing, _),
                ClientSession(reading, writing) as session,
            ):
                await session.initialize()
                (board,) = (await answer(session, "boards"))["boards"]
                assert board["name"] == "transpose"

        anyio.run(agent)
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for headers in ({}, {name: value + "x"}):
            refused = httpx.post(url, json=asked, headers=headers)
            assert refused.status_code == 401 and "as kbslurm mcp printed it" in refused.json()["detail"]
        elsewhere = {name: value, "Host": "evil.example", "Accept": "application/json, text/event-stream"}
        assert httpx.post(url, json=asked, headers=elsewhere).status_code == 421
    finally:
        serving.terminate()
        serving.wait(30)
        serving.stdout.close()


def test_a_secret_of_one_s_own_is_not_printed(still: ServedApi, tmp_path: Path) -> None:
    env = {**environment(still, tmp_path / "home"), "KBSLURM_MCP_TOKEN": "of-my-own"}
    argv = [sys.executable, "-m", "kbslurm", "mcp", "--http", "0", "--json"]
    serving = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    try:
        decoder, text = json.JSONDecoder(), ""
        while True:
            text += serving.stdout.readline()
            try:
                told, _ = decoder.raw_decode(text)
                break
            except ValueError:
                assert text.count("\n") < 9, text
        assert told["token"] is None
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert httpx.post(told["url"], json=asked).status_code == 401
        own = {"Authorization": "Bearer of-my-own"}
        assert httpx.post(told["url"], json=asked, headers=own).status_code != 401
    finally:
        serving.terminate()
        rest = serving.communicate(timeout=30)[0]
    assert "of-my-own" not in text + rest


def test_without_the_package_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name == "mcp" else find(name, package)
    )
    said = CommandLine(cwd=tmp_path)("mcp")
    assert said.code == 2 and "pip install 'kbslurm[mcp]'" in said.err and "isn't installed" in said.err


def test_it_needs_a_service_and_a_token(tmp_path: Path) -> None:
    run = CommandLine(cwd=tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)})
    nowhere = run("mcp")
    assert nowhere.code == 2 and "none is in use" in nowhere.err and "kbslurm login" in nowhere.err
    nobody = run("mcp", KBSLURM_URL="http://127.0.0.1:9")
    assert nobody.code == 4 and "aren't signed in" in nobody.err


def test_a_port_that_is_taken_is_told(still: ServedApi, tmp_path: Path) -> None:
    port = still.url.rpartition(":")[2]
    env = {"KBSLURM_URL": still.url, "KBSLURM_TOKEN": "x", "XDG_CONFIG_HOME": str(tmp_path)}
    said = CommandLine(cwd=tmp_path, env=env)("mcp", "--http", port)
    assert said.code == 2 and f"port {port} can't be used" in said.err


@pytest.mark.parametrize(
    ("verdict", "mode", "words"),
    [
        (None, "test", "status"),
        ("wrong", "test", "failures"),
        ("violation", "test", "isn't allowed"),
        ("infrastructure", "test", "not the code"),
        ("passed", "test", "benchmark"),
        ("passed", "benchmark", "profile"),
        ("passed", "profile", "profile"),
        ("passed", "leaderboard", "counts"),
    ],
)
def test_every_verdict_has_a_next_step(verdict: str | None, mode: str, words: str) -> None:
    assert words in next_steps.after(verdict, mode)


def test_a_next_step_is_told_once() -> None:
    assert len(next_steps.after_all([("wrong", None), ("wrong", None), ("passed", None)], "test")) == 2
    assert "doesn't rank: too late" in next_steps.after("passed", "leaderboard", not_ranked="too late")
