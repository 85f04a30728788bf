"""Scripts without a board: who may run one, what comes back, what it may use, and that no list has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.domain import scripts
from kbslurm.domain.access import Role
from kbslurm.domain.intake import Offer
from kbslurm.domain.policy import QUOTA_WINDOW
from kbslurm.domain.run import Ending, SubmissionId
from kbslurm.errors import Invalid, QuotaSpent, Refused
from kbslurm.flow.collect import AttemptNotes, collect
from kbslurm.flow.launch import launch
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from tests.command_line import CommandLine
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import START, HandClock
from tests.popcorn.served_api import ServedApi, served, working

ANSWERS = b"import sys\nprint('found', 6 * 7)\nprint('aside', file=sys.stderr)\n"
OFFERS = (
    Offer(name="della", gpus=("H100", "A100")),
    Offer(name="lab", gpus=("B200",), staff_only=True),
    Offer(name="modal", gpus=("L4",), role="overflow"),
)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", toml="[policy]\nscript_gpu_s_per_day = 100\n") as built:
        yield built


@pytest.fixture
def still(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    """At a fixed moment, without a daemon."""
    toml = "[policy]\nscript_gpu_s_per_day = 100\n"
    with served(database_url, tmp_path / "service", clock=HandClock(), toml=toml) as built:
        yield built


def token_of(api: ServedApi, name: str, role: Role = "staff") -> str:
    return api.store.tokens.issue(api.store.people.ensure(name, role).id, device="test", now=api.now)


def typing(api: ServedApi, home: Path, name: str = "grace", role: Role = "staff") -> CommandLine:
    home.mkdir(exist_ok=True)
    env = {"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token_of(api, name, role), "XDG_CONFIG_HOME": str(home / "conf")}
    return CommandLine(cwd=home, env=env)


def sent(api: ServedApi, token: str, source: bytes = ANSWERS, name: str = "probe.py", **asked: Any) -> httpx.Response:
    return httpx.post(
        f"{api.url}/admin/scripts",
        params={"gpu": "H100", **asked},
        files={"file": (name, source)},
        headers={"Authorization": f"Bearer {token}"},
    )


def test_a_host_runs_a_file_and_its_output_comes_back(api: ServedApi, tmp_path: Path) -> None:
    run = typing(api, tmp_path / "home")
    (tmp_path / "home/probe.py").write_bytes(ANSWERS)
    (tmp_path / "home/fails.py").write_text("import sys\nprint('before')\nsys.exit(3)\n")
    with working(api, tmp_path):
        told = run("run", "probe.py", "--gpu", "h100")
        assert told.code == 0, told.err
        assert told.out.splitlines() == ["found 42", "aside"]
        assert "exit status 0" in told.err and "of 100 GPU-seconds used" in told.err
        failed = run("run", "fails.py", "--gpu", "H100", "--timeout", "20", "--json")
    found = failed.json()
    assert failed.code == 3
    assert (found["verdict"], found["exit_status"], found["output"]) == ("error", 3, "before\n")
    assert found["timeout_s"] == 20 and found["took_s"] > 0
    again = run("run", "--show", str(found["script"]), "--json").json()
    assert again == {**found, "used_gpu_s": again["used_gpu_s"]}
    assert again["isolation"] is not None


def test_by_the_database_it_is_the_same(api: ServedApi, tmp_path: Path, database_url: str) -> None:
    home = tmp_path / "login-node"
    home.mkdir()
    (home / "probe.py").write_bytes(ANSWERS)
    (home / "kbslurm.toml").write_text((tmp_path / "service/kbslurm.toml").read_text())
    run = CommandLine(cwd=home, env={"DATABASE_URL": database_url, "KBSLURM_URL": ""})
    api.store.people.ensure("grace", "staff")
    with working(api, tmp_path):
        told = run("run", "probe.py", "--gpu", "H100", "--as", "grace", "--json")
    assert told.code == 0, told.err
    assert told.json()["by"] == "grace" and told.json()["output"] == "found 42\naside\n"


def test_only_hosts_may(still: ServedApi, tmp_path: Path) -> None:
    assert sent(still, token_of(still, "ada", "participant")).status_code == 401
    assert sent(still, "made-up").status_code == 401
    eves = typing(still, tmp_path / "eve", "eve", "participant")
    (tmp_path / "eve/probe.py").write_bytes(ANSWERS)
    told = eves("run", "probe.py", "--gpu", "H100")
    assert told.code == 4 and "doesn't belong to a host" in told.err
    assert still.store._all("SELECT id FROM submission") == []


def test_it_is_on_no_board_and_in_no_list(still: ServedApi) -> None:
    token = token_of(still, "grace")
    number = sent(still, token).json()["script"]
    mine = {"X-Popcorn-Cli-Id": token}
    host = {"Authorization": f"Bearer {token}"}

    def got(path: str, headers: dict[str, str]) -> str:
        answer = httpx.get(f"{still.url}{path}", headers=headers)
        assert answer.status_code == 200, (path, answer.text)
        return answer.text

    for path in ("/leaderboards", "/user/submissions", "/user/me", "/"):
        assert scripts.NAME not in got(path, mine) and "probe.py" not in got(path, mine), path
    for path in ("/admin/stats", "/admin/problems", "/admin/overview"):
        assert scripts.NAME not in got(path, host), path
    others = {"X-Popcorn-Cli-Id": token_of(still, "ada", "participant")}
    assert httpx.get(f"{still.url}/s/{number}", headers=others).status_code in (303, 404)
    assert httpx.get(f"{still.url}/user/submissions/{number}", headers=others).status_code == 404
    assert httpx.get(f"{still.url}/user/submissions/{number}", headers=mine).status_code == 404
    assert still.store.boards.find(scripts.NAME) is None and still.store.problems.all() != []
    assert all(one.name != scripts.NAME for one in still.store.problems.all())
    made = httpx.post(
        f"{still.url}/admin/leaderboards/upload",
        params={"name": scripts.NAME},
        files={"file": ("reference.py", b"x = 1")},
        headers=host,
    )
    assert made.status_code == 400, "nobody else can have that name"


def test_what_passes_never_ranks(still: ServedApi) -> None:
    number = sent(still, token_of(still, "grace")).json()["script"]
    store, now = still.store, still.now
    attempt = claim(store.queue, free_slots({"local": Puppet(slots={"H100": 1}).capacity()}, []), now)
    assert attempt is not None
    work = store.attempts.work(attempt.id)
    assert (work.mode, work.problem.name) == ("test", scripts.NAME)
    score(store, attempt, sealed_report(work, log="found 42\n", host={"script": {"exit_status": 0}}), now)
    (run,) = store.submissions.get(SubmissionId(number)).runs
    assert run.verdict is not None and (run.verdict.name, run.verdict.ranked) == ("passed", False)
    (row,) = store._all("SELECT may_rank FROM run")
    assert row["may_rank"] is False


def test_the_audit_log_has_who_ran_what_and_who_cancelled_it(still: ServedApi) -> None:
    token = token_of(still, "grace")
    told = sent(still, token, timeout_s=30).json()
    httpx.delete(f"{still.url}/admin/scripts/{told['script']}", headers={"Authorization": f"Bearer {token}"})
    lines = still.host().host("GET", "/admin/audit")["audit"]
    ran = next(one for one in lines if one["act"] == "script")
    assert (ran["by"], ran["subject"]) == ("grace", f"submission:{told['script']}")
    assert ran["data"]["gpu"] == "H100" and ran["data"]["timeout_s"] == 30 and len(ran["data"]["sha256"]) == 64
    assert next(one for one in lines if one["act"] == "script.cancel")["by"] == "grace"


def test_what_is_used_up_is_said_and_more_is_refused(still: ServedApi) -> None:
    token = token_of(still, "grace")
    assert sent(still, token, timeout_s=60).status_code == 202
    refused = sent(still, token, timeout_s=60)
    assert refused.status_code == 429 and refused.headers["Retry-After"]
    assert "60 of 100 used" in refused.json()["detail"] and "a time limit of 40 s or less" in refused.json()["detail"]
    assert sent(still, token, timeout_s=40).status_code == 202
    assert sent(still, token, timeout_s=1).status_code == 429
    assert sent(still, token_of(still, "hopper"), timeout_s=60).status_code == 202, "each has their own"
    assert "shorter" in sent(still, token_of(still, "lovelace"), timeout_s=101).json()["detail"]


def test_what_it_used_is_what_counts_and_for_a_day(still: ServedApi) -> None:
    clock = still.context.clock
    assert isinstance(clock, HandClock)
    token, store = token_of(still, "grace"), still.store
    number = sent(still, token, timeout_s=90).json()["script"]
    attempt = claim(store.queue, free_slots({"local": Puppet(slots={"H100": 1}).capacity()}, []), clock.now())
    assert attempt is not None
    store._do("UPDATE attempt SET started_at = %(at)s", {"at": clock.now()})
    clock.go(25)
    score(store, attempt, sealed_report(store.attempts.work(attempt.id)), clock.now())
    headers = {"Authorization": f"Bearer {token}"}
    told = httpx.get(f"{still.url}/admin/scripts/{number}", headers=headers).json()
    assert (told["took_s"], told["used_gpu_s"]) == (25.0, 25.0)
    assert sent(still, token, timeout_s=76).status_code == 429
    assert sent(still, token, timeout_s=75).status_code == 202
    store.submissions.cancel(SubmissionId(number + 1), None, clock.now())
    clock.go(86_400)
    assert sent(still, token, timeout_s=100).status_code == 202


def test_what_was_never_seen_to_start_is_used_up_all_the_same(still: ServedApi) -> None:
    clock, store, token = still.context.clock, still.store, token_of(still, "grace")
    assert isinstance(clock, HandClock)
    silent = Puppet(name="local", slots={"H100": 1})  # its scheduler never says anything of a job; the reports come
    place = Place(backend=silent, ranked_min_isolation=0)
    assert sent(still, token, timeout_s=90).status_code == 202
    attempt = claim(store.queue, free_slots({"local": silent.capacity()}, []), clock.now())
    assert attempt is not None
    launch(store.attempts, place, attempt, clock.now())
    clock.go(80)
    (waiting,) = store.attempts.open()
    silent.reports[waiting.name] = sealed_report(store.attempts.work(waiting.id))
    collect(store, place, [waiting], AttemptNotes(), clock.now())
    ended_at = clock.now()
    assert store._all("SELECT state, started_at FROM attempt") == [{"state": "reported", "started_at": None}]
    clock.go(60)
    refused = sent(still, token, timeout_s=90)
    assert refused.status_code == 429 and "80 of 100 used" in refused.json()["detail"], refused.text
    assert f"{ended_at + QUOTA_WINDOW:%Y-%m-%d %H:%M}" in refused.json()["detail"]
    assert sent(still, token, timeout_s=20).status_code == 202


def test_an_attempt_that_was_lost_counts_at_the_most_it_could_use(still: ServedApi) -> None:
    clock, store, token = still.context.clock, still.store, token_of(still, "grace")
    assert isinstance(clock, HandClock)
    assert sent(still, token, timeout_s=90).status_code == 202
    attempt = claim(store.queue, free_slots({"local": Puppet(slots={"H100": 1}).capacity()}, []), clock.now())
    assert attempt is not None
    most_s = store._all("SELECT cost_s FROM run")[0]["cost_s"]
    store.attempts.give_up(attempt, Ending.VANISHED, "nobody knows it", clock.now())
    spent = store.scripts.spent(store.people.ensure("grace", "staff").id, clock.now())
    assert (spent.used_s, spent.oldest_use_at) == (most_s, clock.now())


def test_a_cancelled_script_gives_its_time_back(still: ServedApi) -> None:
    token = token_of(still, "grace")
    number = sent(still, token, timeout_s=100).json()["script"]
    assert sent(still, token, timeout_s=100).status_code == 429
    gone = httpx.delete(f"{still.url}/admin/scripts/{number}", headers={"Authorization": f"Bearer {token}"}).json()
    assert (gone["state"], gone["done"], gone["used_gpu_s"]) == ("cancelled", True, 0.0)
    assert sent(still, token, timeout_s=100).status_code == 202


def test_where_scripts_are_off_that_is_said(database_url: str, tmp_path: Path) -> None:
    toml = "[policy]\nscript_gpu_s_per_day = 0\n"
    with served(database_url, tmp_path / "service", toml=toml) as api:
        refused = sent(api, token_of(api, "grace"))
    assert refused.status_code == 403 and "turned off" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("name", "source", "asked", "status", "said"),
    [
        ("k.cu", b"int main() {}", {}, 400, "isn't a Python file"),
        ("k.sh", b"echo", {}, 400, "isn't a Python file"),
        ("probe.py", b"", {}, 400, "is empty"),
        ("probe.py", b"\xff\xfe", {}, 400, "isn't UTF-8"),
        ("probe.py", ANSWERS, {"gpu": "B200"}, 400, "no place has a GPU of type 'B200'"),
        ("probe.py", ANSWERS, {"place": "mars"}, 400, "there is no place 'mars'"),
        ("probe.py", ANSWERS, {"timeout_s": 601}, 422, "timeout_s"),
        ("probe.py", ANSWERS, {"timeout_s": 0}, 422, "timeout_s"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(
    still: ServedApi, name: str, source: bytes, asked: dict[str, Any], status: int, said: str
) -> None:
    answer = sent(still, token_of(still, "grace"), source, name, **asked)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    assert still.store._all("SELECT id FROM run") == []


def test_where_it_may_go_follows_from_who_sends_it() -> None:
    assert scripts.chosen_gpu("h100", OFFERS, None, staff=False) == ("H100", None)
    assert scripts.chosen_gpu("B200", OFFERS, "LAB", staff=True) == ("B200", "lab")
    for asked, place in (("B200", None), ("L4", None), ("L4", "modal"), ("B200", "della")):
        with pytest.raises(Invalid):
            scripts.chosen_gpu(asked, OFFERS, place, staff=False)


def test_the_budget_says_when_there_is_more() -> None:
    scripts.check_budget(scripts.Spent(used_s=40), 60, 100, START)
    with pytest.raises(QuotaSpent, match="90 of 100 used") as refused:
        scripts.check_budget(scripts.Spent(used_s=90, oldest_use_at=START), 60, 100, START)
    assert refused.value.resets_at is not None and (refused.value.resets_at - START).days == 1
    with pytest.raises(QuotaSpent) as refused:
        scripts.check_budget(scripts.Spent(open_s=90), 60, 100, START)
    assert refused.value.resets_at is not None and (refused.value.resets_at - START).total_seconds() < 60
    with pytest.raises(Refused, match="turned off"):
        scripts.check_budget(scripts.Spent(), 1, 0, START)


def test_without_a_file_or_a_type_the_command_says_what_is_missing(still: ServedApi, tmp_path: Path) -> None:
    run = typing(still, tmp_path / "home")
    (tmp_path / "home/probe.py").write_bytes(ANSWERS)
    assert "no file given" in run("run").err
    assert "no GPU type given" in run("run", "probe.py").err
    assert "--show takes no file" in run("run", "probe.py", "--show", "3").err
    assert "there is no script '3'" in run("run", "--show", "3").err
    left = run("run", "probe.py", "--gpu", "H100", "--detach")
    assert left.code == 0 and "--show 1" in left.out


def test_ctrl_c_cancels_it(api: ServedApi, tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = typing(api, home)
    (home / "long.py").write_text("import time\nprint('begun')\ntime.sleep(600)\n")
    argv = [sys.executable, "-m", "kbslurm", "run", "long.py", "--gpu", "H100", "--json"]
    with working(api, tmp_path):
        env = {**os.environ, **run.env, "HOME": str(home)}
        with subprocess.Popen(argv, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as typed:
            until_running(api)
            typed.send_signal(signal.SIGINT)
            out, err = typed.communicate(timeout=120)
    assert typed.returncode == 130, err
    assert json.loads(out)["state"] == "cancelled"


def until_running(api: ServedApi) -> None:
    while not api.store._all("SELECT 1 FROM run WHERE state = 'running'"):
        api.store.events.wait(0.25)
