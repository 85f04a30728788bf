"""The harness where Modal runs it: in gVisor, whose kernel isn't Linux."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbslurm import wiring
from kbslurm.config import settings, shared_folders
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.problems import loading
from tests.fakes.modal import TOKEN, FakeModal
from tests.flow.stage import QUICK, Stage, running
from tests.gvisor.conftest import Inside

REACHED = 2
OF_THE_HARNESS = ["right_submission", "one_verdict", "are_timeouts", "works_from_a_copy"]
OF_MEMORY = ["holds_a_table_once and False", "each_of_a_pool"]
TRANSPOSE = shared_folders.path("examples") / "transpose"
TOML = """\
[modal]
app = "kernels"
poll_s = 0.1
[modal.gpus.H100]
slots = 2
timeout_s = 3600
"""


def test_the_probe_reaches_the_level_that_the_threat_model_names(inside: Inside, root: Path) -> None:
    done = inside([sys.executable, "-I", "eval", "--probe"])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["level"], told["means"]) == (REACHED, "unshare"), told
    (note,) = told["notes"]
    assert "gVisor" in note and "cores" in note and "scheduling classes" in note
    (written,) = re.findall(r"In gVisor \d+ [^:]* level (\d):", (root / "docs" / "threat-model.md").read_text())
    assert int(written) == REACHED


def test_without_namespaces_it_says_why_it_is_lower(inside: Inside, tmp_path: Path) -> None:
    """The harness lies where only root can reach it, so a runner stays root there, without capabilities."""
    shared = json.loads(inside([sys.executable, "-I", "eval", "--probe"], {"KBSLURM_EVAL_LEVEL": "1"}).stdout)
    assert (shared["level"], shared["means"]) == (0, "seccomp")
    assert any("files can be left for the next launch" in note for note in shared["notes"]), shared
    tmp_path.chmod(0o700)
    (tmp_path / "eval").symlink_to(Path("eval").absolute())
    script = f"cp -rL {tmp_path}/eval {tmp_path}/own && exec {shlex.quote(sys.executable)} -I {tmp_path}/own --probe"
    done = inside(["sh", "-c", script], {"KBSLURM_EVAL_LEVEL": "1"})
    assert done.returncode == 0, done.stderr
    own = json.loads(done.stdout)
    assert (own["level"], own["means"]) == (0, "process")
    assert "level 1: this kernel doesn't keep root's capabilities away for good (securebits)" in own["notes"], own


ENDS_BETWEEN_TWO_LOOKS = """\
import subprocess, sys
sys.path.insert(0, "eval")
from kbslurm_eval.cage.processes import ProcessPages
child, known = subprocess.Popen(["sleep", "60"]), ProcessPages()
threads, _ = known.look(child.pid)
assert [task for task, _ in threads] == [str(child.pid)], threads
child.kill()
child.wait()
assert known.children(child.pid) is None
assert known.look(child.pid) == ((), [])
"""


def test_a_process_that_ends_between_two_looks_is_gone(inside: Inside) -> None:
    done = inside([sys.executable, "-I", "-c", ENDS_BETWEEN_TWO_LOOKS])
    assert done.returncode == 0, done.stderr


def test_the_harness_passes_its_own_tests(inside: Inside) -> None:
    wanted = ["tests/flow/test_harness_run.py", "-k", " or ".join(OF_THE_HARNESS)]
    done = inside([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *wanted], {"CI": "true"})
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    found = re.search(r"^(\d+) passed, 0 failed$", done.stdout, flags=re.MULTILINE)
    assert found and int(found[1]) >= 15, done.stdout


def test_what_honest_people_do_at_home_and_throw_away_works(inside: Inside) -> None:
    """A device that is bound read-only can't be written to there."""
    code = "from tests.adversarial import corpus, trial; entry, = [e for e in corpus.honest() if e.name == sys.argv[1]]"
    code = f"import sys; {code}; print([one.verdict for one in [trial.tried(entry, level=2, size=3000)]])"
    done = inside([sys.executable, "-c", code, "caches_at_home"])
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


def test_what_processes_share_counts_once_and_what_each_has_for_itself_counts(inside: Inside) -> None:
    wanted = ["tests/flow/test_harness_memory.py", "-k", " or ".join(OF_MEMORY)]
    done = inside([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *wanted], {"CI": "true"})
    assert re.search(r"^2 passed, 0 failed$", done.stdout, flags=re.MULTILINE), done.stdout[-8000:]


@pytest.fixture
def modal(sandbox: list[str], tmp_path: Path) -> Iterator[FakeModal]:
    """The platform, with what `kbslurm modal deploy` would have deployed, and gVisor's containers."""
    (tmp_path / "kbslurm.toml").write_text(TOML)
    found = settings.load(env={}, cwd=tmp_path)
    wiring.modal_folder(found, wiring.modal_facts(found), tmp_path / "app")
    with FakeModal(tmp_path / "app", sandbox=sandbox) as fake:
        yield fake


def test_the_demos_problem_ranks_on_modal_at_the_default_policy(
    modal: FakeModal, database_url: str, tmp_path: Path
) -> None:
    """The whole walk: deployed, sent, judged in gVisor, collected, scored."""
    told = {"MODAL_TOKEN_ID": TOKEN[0], "MODAL_TOKEN_SECRET": TOKEN[1], "MODAL_SERVER_URL": modal.url}
    place = replace(wiring.modal_place(settings.load(env=told, cwd=tmp_path)), role="home")
    stage = Stage.build(
        database_url, problem=loading.load(TRANSPOSE), gpus=("H100",), clock=WallClock(), board="transpose"
    )
    try:
        source = (TRANSPOSE / "submissions" / "accepted" / "columns.py").read_text()
        stage.submit(source, gpus=["H100"], mode="leaderboard")
        with running(Daemon(stage.store, [place], timing=QUICK)):
            stage.wait_until(lambda: stage.open_runs() == 0)
        (run,) = stage.runs()
        assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "passed", 1), run
        (verdict,) = stage.rows("SELECT * FROM verdict")
        assert (verdict["isolation"], verdict["ranked"]) == (REACHED, True), verdict["reason"]
        assert any("gVisor" in note for note in verdict["detail"]["isolation"]["notes"])
    finally:
        stage.close()
        place.backend.close()  # type: ignore[attr-defined]
