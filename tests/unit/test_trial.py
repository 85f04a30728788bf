"""What a try makes of a harness that doesn't do its part: never a verdict that nobody proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbslurm.cli.output.trial import print_trial
from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid
from kbslurm.trial.run import Trial, as_try_json, exit_code, run_trial
from kbslurm.trial.verifying import expected_verdicts, fullest_mode, verify
from kbslurm_eval.shared.timing import UNRESOLVED
from kbslurm_eval.shared.wire import PHASES, BenchmarkResult, Isolation, PhaseName, PhaseResult, Report

PROBLEM = Problem(name="p", files={"reference.py": ""}, tests=({},), benchmarks=({},), hidden=({},))
# The harness can't be made to lie, so another program stands in for it here; it knows the manifest and the key.
HEAD = f"""
import dataclasses, json, os, sys, time
sys.path.insert(0, {str(Path(__file__).resolve().parents[2] / "eval")!r})
from kbslurm_eval.shared import wire
manifest = wire.read_manifest(open(sys.argv[1]).read())
key, out = open(sys.argv[3], "rb").read(), sys.argv[5]
now = time.time_ns()
good = wire.Report(
    version=wire.WIRE_VERSION, token=manifest.token, attempt=manifest.attempt, nonce=manifest.nonce, mode=manifest.mode,
    problem_digest=manifest.problem_digest, harness_digest="x", verdict="passed", reason="", score_s=None,
    interval_s=None, tests=[], benchmarks=[],
    phases=[
        wire.PhaseResult(name=n, passed=True, started_at_ns=now, ended_at_ns=now) for n in wire.PHASES[manifest.mode]
    ],
    isolation=wire.Isolation(level=0, means="none"), started_at_ns=now, ended_at_ns=now, log="hello",
)
def leave(text):
    with open(out + "/report.json", "w") as file:
        file.write(text)
"""


def tried(tmp_path: Path, body: str, **more: object) -> Trial:
    place = tmp_path / "eval"
    place.mkdir()
    (place / "__main__.py").write_text(HEAD + body)
    work = tmp_path / "work"
    trial = run_trial(PROBLEM, "a.py", "x = 1\n", "test", work=work, eval_dir=place, timeout_s=120, **more)  # type: ignore[arg-type]
    assert list(work.iterdir()) == [], "something was left behind"
    return trial


def test_a_sealed_report_is_believed(tmp_path: Path) -> None:
    trial = tried(tmp_path, "assert manifest.source == 'x = 1\\n'\nleave(wire.seal(good, key))\n")
    assert (trial.report.verdict, trial.report.log) == ("passed", "hello")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("leave(wire.seal(good, b'another key'))", "isn't sealed with this attempt's key"),
        ("leave(wire.dumps(good))", "can't be trusted"),
        ("leave('{')", "can't be trusted"),
        ("leave(wire.seal(dataclasses.replace(good, nonce='0'), key))", "about another run"),
        ("leave(wire.seal(dataclasses.replace(good, problem_digest='0'), key))", "about another run"),
        ("os.symlink('/etc/passwd', out + '/report.json')", "left no report"),
        ("os.mkfifo(out + '/report.json')", "left no report"),
        ("print('what a pity'); sys.exit(9)", "exit code 9 and left no report"),
        ("os.kill(os.getpid(), 9)", "exit code 137 and left no report"),
        ("os.kill(os.getpid(), 11)", "exit code 139 and left no report"),
    ],
)
def test_everything_else_is_infrastructure(tmp_path: Path, body: str, says: str) -> None:
    trial = tried(tmp_path, body)
    assert trial.report.verdict == "infrastructure"
    assert says in trial.report.reason
    assert exit_code(trial.report.verdict) == 6
    if "pity" in body:
        assert "what a pity" in trial.report.log


def test_a_check_that_brings_the_judge_down_says_that_the_answer_is_wrong(tmp_path: Path) -> None:
    trial = tried(tmp_path, "open(out + '/checking', 'w').write('1\\n')\nos.kill(os.getpid(), 11)")
    assert (trial.report.verdict, "check didn't survive" in trial.report.reason) == ("wrong", True)


def test_the_heartbeat_is_passed_on(tmp_path: Path) -> None:
    seen: list[object] = []
    body = """
for n in range(3):
    with open(out + "/.beat", "w") as file:
        json.dump({"phase": "test", "n": n}, file)
    os.rename(out + "/.beat", out + "/heartbeat.json")
while not os.path.exists(out + "/seen"):
    time.sleep(0.01)
leave(wire.seal(good, key))
"""

    def noted(beat: object) -> None:
        seen.append(beat)
        next((tmp_path / "work").glob("kb-*/out")).joinpath("seen").touch()

    tried(tmp_path, body, on_heartbeat=noted)
    assert seen[-1] == {"phase": "test", "n": 2}


def test_what_the_caller_has_in_its_environment_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody")
    trial = tried(
        tmp_path, "print(sorted(os.environ), os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd()); sys.exit(1)"
    )
    assert "DATABASE_URL" not in trial.report.log
    assert trial.report.log.strip().endswith("True")


def test_a_try_is_one_json_object_with_a_capped_log() -> None:
    report = Report(
        version=1, token="t", attempt=1, nonce="n", mode="test", problem_digest="d", harness_digest="h",
        verdict="wrong", reason="no", score_s=None, interval_s=None, tests=[], benchmarks=[],
        phases=[PhaseResult(name=PHASES["test"][0], passed=False, started_at_ns=1, ended_at_ns=2)],
        isolation=Isolation(level=1, means="x"), started_at_ns=1, ended_at_ns=2, log="y" * 60_000, secret_log="SECRET",
    )  # fmt: skip
    told = json.dumps(as_try_json(Trial(report=report, took_s=1.0)))
    assert {"verdict", "reason", "score_s", "interval_s", "tests", "benchmarks", "isolation", "log"} <= set(
        json.loads(told)
    )
    assert len(told) < 25_000
    assert "SECRET" not in told


def test_the_folders_are_the_verdicts(tmp_path: Path) -> None:
    for name in ("accepted/b.py", "accepted/a.py", "cheat/c.py", "accepted/.hidden", "accepted/__pycache__/a.pyc"):
        file = tmp_path / "submissions" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")
    found = [(file.name, verdict) for file, verdict in expected_verdicts(tmp_path)]
    assert found == [("a.py", "passed"), ("b.py", "passed"), ("c.py", "violation")]
    (tmp_path / "one.py").touch()
    assert expected_verdicts(tmp_path / "one.py") == expected_verdicts(tmp_path)
    (tmp_path / "submissions" / "good").mkdir()
    with pytest.raises(Invalid, match="submissions/good isn't named after a verdict"):
        expected_verdicts(tmp_path)


def test_nothing_to_verify_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no submissions/ folder"):
        verify(tmp_path, problem=PROBLEM, work=tmp_path / "work", eval_dir=tmp_path)
    (tmp_path / "submissions" / "accepted").mkdir(parents=True)
    with pytest.raises(Invalid, match="submissions/ contains no submissions"):
        verify(tmp_path, problem=PROBLEM, work=tmp_path / "work", eval_dir=tmp_path)


def test_the_fullest_mode_is_chosen(tmp_path: Path) -> None:
    assert fullest_mode(PROBLEM) == "leaderboard"
    few = Problem(name="p", files={}, tests=({},), modes=("test",))
    assert fullest_mode(few) == "test"
    with pytest.raises(Invalid, match="problem p has no benchmark mode"):
        run_trial(few, "a.py", "x", "benchmark", work=tmp_path, eval_dir=tmp_path)


def test_a_submission_that_cant_be_one_is_refused(tmp_path: Path) -> None:
    for name, text in (("a.py", ""), ("a.txt", "x"), ("a.cu", "x")):
        with pytest.raises(Invalid):
            run_trial(PROBLEM, name, text, "test", work=tmp_path, eval_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_times_below_a_score_are_those_it_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    def row(phase: PhaseName, ms: float, *flags: str) -> BenchmarkResult:
        return BenchmarkResult(
            phase=phase, index=0, spec="n: 1", status="pass", median_ns=ms * 1e6, low_ns=ms * 0.9e6, high_ns=ms * 1.1e6,
            flags=list(flags),
        )  # fmt: skip

    def said(*rows: BenchmarkResult, score_s: float | None = 3.8e-3) -> str:
        report = Report(
            version=1, token="t", attempt=1, nonce="n", mode="leaderboard", problem_digest="d", harness_digest="h",
            verdict="passed", reason="", score_s=score_s, interval_s=[3.7e-3, 3.9e-3], tests=[], benchmarks=list(rows),
            phases=[], isolation=Isolation(level=1, means="x"), started_at_ns=1, ended_at_ns=2,
        )  # fmt: skip
        print_trial(Trial(report=report, took_s=1.0), as_json=False, ranking_by="geom")
        return capsys.readouterr().out

    short = row("benchmark", 1.6, UNRESOLVED)
    told = said(short, row("ranked", 3.8))
    assert "3.80 ms" in told and "1.60 ms" not in told and "wouldn't rank" not in told
    told = said(short, row("ranked", 3.8, UNRESOLVED))
    assert "wouldn't rank: too short to be timed here" in next(line for line in told.splitlines() if "score" in line)
    assert "at most 3.80 ms" in told and "1.60 ms" not in told
    assert "at most 1.60 ms" in said(short, score_s=None)
