"""The walk over GitHub: accepted, sealed, dispatched, judged by the real harness in the real workflow, scored once."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from kbslurm.backends.github import check
from kbslurm.backends.github.backend import GithubBackend
from kbslurm.config import shared_folders
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import GITHUB_CRASH_POINTS
from kbslurm.problems import loading
from kbslurm_eval.shared.wire import Budget
from tests.command_line import CommandLine
from tests.fakes.github import REPOSITORY, TOKEN, FakeGithub, Fault
from tests.fakes.github.lent import lent_for
from tests.flow.stage import QUICK, Stage, running

ROOT = Path(__file__).resolve().parents[2]
ONE_FILE = ROOT / "examples" / "one_file"
GPU = "H100"
CONFIGURED = f"""\
[github]
repository = "{REPOSITORY}"
gpus = {{ {GPU} = ["self-hosted", "h100"] }}
"""


@dataclass
class Lending:
    """A repository on loopback that lends its runners, and the place that it is."""

    fake: FakeGithub
    place: Place
    env: dict[str, str]


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[Lending]:
    with lent_for(GPU, tmp_path / "github") as found:
        place = Place(backend=found.backend, poll_s=0.2, grace_s=5.0, sweep_gap_s=0.2, patience_s=600.0)
        yield Lending(found.fake, place, found.env)


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    problem = dataclasses.replace(
        loading.load(ONE_FILE / "running_sum.py"), budget=Budget(launches=2, calls=5, max_calls=5), config={}
    )
    found = Stage.build(database_url, problem=problem, gpus=(GPU,), clock=WallClock())
    yield found
    found.close()


def example(path: str) -> str:
    return (ONE_FILE / "submissions" / path).read_text()


def check_versions_and_limits(lent: Lending) -> None:
    """What `github check` and `status` say of a repository with a run, while its backend is open."""
    # Each run's log begins with its runner's version, which the API doesn't tell
    backend = lent.place.backend
    assert isinstance(backend, GithubBackend)
    run = lent.fake.runs[-1]
    log = run.log
    for version, grade in (("2.326.9", "CAUTION"), ("2.327.1", "PASS")):
        run.log = f"Current runner version: '{version}'\n".encode() + log
        seen = {one.name: one for one in check.findings(backend, shared_folders.eval_dir())}["runner version"]
        assert (seen.grade, seen.text.split(" ")[0]) == (grade, version)
    run.log = log
    # What is left of its limits, as the daemon publishes it for status
    assert [one.what for one in backend.limits()] == [
        "API calls", "creating calls per minute", "creating calls per hour",
    ]  # fmt: skip


def test_what_is_submitted_is_judged_there_and_has_one_verdict(stage: Stage, lent: Lending) -> None:
    right, wrong = example("accepted/accumulated.py"), example("wrong_answer/off_by_one.py")
    lent.fake.fail.append(Fault("POST", "dispatches", lose=True))  # the first one's answer never comes
    stage.submit(right, by="ada", mode="leaderboard")
    stage.submit(wrong, by="bob")
    with running(Daemon(stage.store, [lent.place], timing=QUICK)):
        stage.wait_until(lambda: stage.open_runs() == 0)
        check_versions_and_limits(lent)
    runs = [run for run in stage.runs() if not run["second"]]  # one that a busy machine disturbs is measured again
    logs = [run.log.decode() for run in lent.fake.runs]
    assert [(run["state"], run["verdict"]) for run in runs] == [("scored", "passed"), ("scored", "wrong")], logs
    mine = "JOIN run ON run.id = run_id WHERE NOT run.second"
    attempts = stage.rows(f"SELECT number, backend, handle, node, a.started_at FROM attempt a {mine} ORDER BY a.id")
    assert [(one["number"], one["backend"]) for one in attempts] == [(1, "github"), (1, "github")]
    assert all(one["handle"].isdecimal() and one["node"].startswith("fake runner") for one in attempts)
    verdicts = stage.rows(f"SELECT count(*) AS n FROM verdict {mine}")
    assert verdicts == [{"n": 2}]
    assert runs[0]["score_s"] > 0
    secret = stage.rows("SELECT secret_seed FROM run ORDER BY id")[0]["secret_seed"]
    for public in (*(json.dumps(run.inputs) for run in lent.fake.runs), *logs):
        assert "custom_kernel" not in public and secret not in public
    assert list(lent.fake.folder.glob("run-*")) == []


def test_where_it_cant_be_kept_apart_nothing_runs(stage: Stage, lent: Lending) -> None:
    """Our own trouble: tried three times, then told so, never held against the submission."""
    backend = lent.place.backend
    assert isinstance(backend, GithubBackend)
    backend.min_isolation = 3  # which takes a container and a whole GPU
    stage.submit(example("accepted/accumulated.py"))
    with running(Daemon(stage.store, [dataclasses.replace(lent.place, grace_s=0.2)], timing=QUICK)):
        stage.wait_until(lambda: stage.open_runs() == 0)
    run = stage.run()
    assert (run["state"], run["verdict"]) == ("failed", "infrastructure")
    assert len(lent.fake.runs) == 3


def test_a_submission_that_is_taken_back_ends_there_too(stage: Stage, lent: Lending) -> None:
    sleeper = "import time\n\n\ndef custom_kernel(data):\n    time.sleep(600)\n    return data\n"
    receipt = stage.submit(sleeper)
    with running(Daemon(stage.store, [lent.place], timing=QUICK)):
        stage.wait_until(lambda: stage.run()["state"] == "running")
        stage.store.submissions.cancel(receipt.submission_id, None, stage.clock.now())
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert stage.run()["state"] == "cancelled"
    assert lent.fake.runs[0].conclusion == "cancelled"


# The contract suite has them all.
@pytest.mark.parametrize("place_of_death", [GITHUB_CRASH_POINTS[0], GITHUB_CRASH_POINTS[-1]])
def test_a_daemon_killed_while_it_dispatches_runs_everything_once(
    stage: Stage, lent: Lending, tmp_path: Path, place_of_death: str
) -> None:
    lines = f"{CONFIGURED}min_isolation = 0\nranked = false\npoll_s = 0.2\n[daemon]\nlease_ttl_s = 1\n"
    (tmp_path / "kbslurm.toml").write_text(lines)
    machine = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    own = {"DATABASE_URL": stage.url, "HOME": str(tmp_path), "KBSLURM_STATE_DIR": str(tmp_path / "state")}
    argv = [sys.executable, "-m", "kbslurm", "--config", str(tmp_path / "kbslurm.toml"), "up", "--once"]

    def daemon(**env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, cwd=ROOT, env={**machine, **own, **lent.env, **env})

    filler = f"# {secrets.token_hex(40_000)}\n"  # too much for a workflow's inputs
    stage.submit(example("wrong_answer/off_by_one.py") + filler)
    with daemon(KBSLURM_PROBE=place_of_death) as first:
        assert first.wait(timeout=120) == -signal.SIGKILL
    with daemon() as second:
        assert second.wait(timeout=120) == 0
    run = stage.run()
    assert (run["state"], run["verdict"]) == ("scored", "wrong")
    assert [one["number"] for one in stage.rows("SELECT number FROM attempt")] == [1]
    assert len([run for run in lent.fake.runs if "is claimed\n" in run.log.decode()]) == 1
    assert stage.rows("SELECT count(*) AS n FROM event WHERE kind = 'run.scored'") == [{"n": 1}]


def test_check_says_what_is_missing_and_install_brings_it(tmp_path: Path, lent: Lending) -> None:
    (tmp_path / "kbslurm.toml").write_text(CONFIGURED)
    command = CommandLine(cwd=tmp_path)

    def found(**env: str) -> tuple[int, dict[str, tuple[str, str]]]:
        said = command("github", "check", "--json", **lent.env | env)
        told = json.loads(said.out)
        return said.code, {one["name"]: (one["grade"], one["text"]) for one in told["findings"]}

    code, findings = found()
    assert code == 0
    assert findings.pop("runner version")[0] == "not looked at", "it is in no answer, only in the log of a run"
    assert {grade for grade, _ in findings.values()} == {"PASS"}, findings
    assert set(findings) == {"API", "repository", "harness", "workflow", "secret", "runners"}
    whole = dict(lent.fake.files)
    lent.fake.files["kbslurm/carry.py"] += b"# edited\n"
    lent.fake.secrets.pop("KBSLURM_RUN_KEY")
    lent.fake.labels, lent.fake.private = ("ubuntu-latest",), False
    code, findings = found()
    assert code == 1
    findings.pop("runner version")
    assert {name: grade for name, (grade, _) in findings.items()} == {
        "API": "PASS",
        "repository": "CAUTION",
        "harness": "FAIL",
        "workflow": "PASS",
        "secret": "FAIL",
        "runners": "CAUTION",
    }
    assert "kbslurm/carry.py" in findings["harness"][1]
    assert "token was rejected" in found(GITHUB_TOKEN="expired")[1]["API"][1]
    plain = command("github", "check", **lent.env)
    assert "kbslurm github install DIR" in plain.out and TOKEN not in plain.out + plain.err

    copy = tmp_path / "copy"
    assert command("github", "install", str(copy)).code == 2, "it is no working copy"
    (copy / ".git").mkdir(parents=True)
    (copy / "kbslurm" / "eval").mkdir(parents=True)
    (copy / "kbslurm" / "eval" / "left_over.py").write_text("")
    (copy / "README.md").write_text("theirs")
    changed = json.loads(command("github", "install", str(copy), "--json").out)["changed"]
    assert "kbslurm/eval/left_over.py" in changed and ".github/workflows/kbslurm-run.yml" in changed
    written = {
        path.relative_to(copy).as_posix(): path.read_bytes()
        for path in copy.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert written == whole
    assert (copy / "README.md").read_text() == "theirs"
    assert "is already up to date" in command("github", "install", str(copy)).out


def test_the_loopback_github_serves_as_a_process(tmp_path: Path) -> None:
    """What the demo starts: the same, told by one line of JSON."""
    argv = [sys.executable, "-m", "tests.fakes.github", "--dir", str(tmp_path / "github")]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as served:
        try:
            assert served.stdout is not None
            told = json.loads(served.stdout.readline())
            url = told["env"]["GITHUB_API_URL"]
            assert httpx.post(f"{url}/_fake", json={"hold": True}, timeout=60).json()["hold"] is True
            (tmp_path / "kbslurm.toml").write_text(CONFIGURED)
            assert CommandLine(cwd=tmp_path)("github", "check", **told["env"]).code == 0
        finally:
            served.send_signal(signal.SIGTERM)
        assert served.wait(timeout=60) == 0
