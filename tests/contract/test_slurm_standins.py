"""Answers that a real Slurm can't be made to give, from stand-in commands: garbage, hangs, lies. They count for nothing
else: the backend's contract is kept on a real Slurm, in tests/cluster.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.doctor import rehearsal
from kbslurm.config import shared_folders, sites
from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen
from kbslurm.domain.site import Submission
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear
from kbslurm.flow.script import SUPERVISOR, harness_folder, script_for, supervisor_digest
from kbslurm.ports import Foresees, JobSpec
from kbslurm_eval.run import UNWRITTEN
from tests.contract import ordinary
from tests.contract.backend_suite import attempt_of, make_eval, make_job

SITE = """\
name = "standins"
untrusted = false
ranked_min_isolation = 0
[paths]
shared_root = "{root}"
[container]
runtime = "none"
[slurm]
bin_dir = "{bin_dir}"
submit_timeout = 2
ask_timeout = 2
[poll]
min_interval = 0
calls_per_minute = 100000
[gpus.T4]
request = "--gres=gpu:1"
"""


UNHEARD_OF = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


class Rig:
    """A site whose commands are shell texts."""

    name, gpu, wait_s, time_limit_s, enforces_memory, steps = "standins", "T4", 60.0, 1.0, False, ()

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin_dir = folder, folder / "bin"
        self.bin_dir.mkdir()
        (folder / "root").mkdir()
        file = folder / "site.toml"
        file.write_text(SITE.format(root=folder / "root", bin_dir=self.bin_dir))
        self.site = sites.load(file)
        self.eval_dir = make_eval(folder / "eval")
        self.environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "SLURM_JOB_ID": "1", "SBATCH_PARTITION": "x"}
        for tool in ("sbatch", "squeue", "sacct", "scancel"):
            self.says(tool, "")
        self.says("scontrol", UNHEARD_OF)

    def says(self, tool: str, text: str) -> None:
        """From now on this tool is this shell text. Each call leaves a line in TOOL.calls."""
        file = self.bin_dir / tool
        file.write_text(f'#!/bin/sh\necho "$*" >>{self.folder}/{tool}.calls\nenv >{self.folder}/{tool}.env\n{text}\n')
        file.chmod(0o755)

    def calls(self, tool: str) -> list[str]:
        file = self.folder / f"{tool}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def backend(self) -> SlurmBackend:
        return SlurmBackend(self.site, eval_dir=self.eval_dir, environ=self.environ)

    def finished(self, job: JobSpec) -> JobSpec:
        directory = self.folder / "root" / "attempts" / job.name
        script = script_for(
            self.site,
            name=job.name,
            gpu=job.gpu,
            directory=directory,
            harness=harness_folder(self.site, self.eval_dir),
            supervisor=supervisor_digest(self.eval_dir),
            time_limit_s=job.time_limit_s,
            memory_bytes=job.memory_bytes,
            templates=shared_folders.path("sbatch_templates"),
            avoid_nodes=("n1",),
        )
        return dataclasses.replace(job, directory=directory, script=script)

    def job(self) -> JobSpec:
        return make_job(self, "report")  # type: ignore[arg-type]

    def attempt(self, job: JobSpec, handle: str | None = None) -> OpenAttempt:
        return attempt_of(self, job, Handle(handle) if handle else None)  # type: ignore[arg-type]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def seen(rig: Rig, job: JobSpec, handle: str | None = "7") -> Seen | None:
    found = rig.backend().poll([rig.attempt(job, handle)]).get(job.name)
    return None if found is None else found.seen


@pytest.mark.parametrize(
    ("squeue", "sacct"),
    [
        ("echo '<html>maintenance</html>'", ""),
        ("", "echo 'sacct: a notice of the day'"),
        ("exit 1", ""),
        ("echo 'squeue: error: Unable to contact slurm controller' >&2", ""),
        ("", "echo 'sacct: error: slurm_persist_conn_open' >&2; exit 1"),
        ("kill -9 $$", ""),
        ("printf '7|kb-'", ""),
        ("sleep 60", ""),
    ],
)
def test_an_answer_that_isnt_understood_concludes_nothing(rig: Rig, squeue: str, sacct: str) -> None:
    job = rig.job()
    rig.says("squeue", squeue)
    rig.says("sacct", sacct)
    assert seen(rig, job) is None
    assert rig.backend().find(job.name).seen is Seen.UNKNOWN


def test_an_unknown_state_concludes_nothing_and_anothers_job_of_our_id_isnt_ours(rig: Rig) -> None:
    job = rig.job()
    rig.says("squeue", f"echo '7|{job.name}|ENCHANTED|1|2|n1|None'")
    assert seen(rig, job) is None
    rig.says("squeue", "echo '7|kb-another|COMPLETED|1|2|n1|None'")
    assert seen(rig, job) is Seen.ABSENT
    rig.says("squeue", "")
    rig.says("sacct", f"echo '7|{job.name}|PENDING|0:0|1|Unknown|Unknown|None assigned|None'")
    assert seen(rig, job) is Seen.WAITING


def test_a_job_that_another_cluster_of_the_federation_took_has_not_ended(rig: Rig) -> None:
    """REVOKED is what the cluster that lost it says; only the attempt's own files tell its end."""
    job = rig.job()
    rig.says("squeue", f"echo '7|{job.name}|REVOKED|1|2||None'")
    found = rig.backend().poll([rig.attempt(job, "7")])[job.name]
    assert found.seen is Seen.WAITING and "federation" in found.reason
    rig.says("squeue", "")
    rig.says("sacct", f"echo '7|{job.name}|REVOKED|0:0|1|2|2|None assigned|None'")
    assert seen(rig, job) is Seen.WAITING
    paths = AttemptPaths(root=rig.backend().root, name=job.name)
    paths.root.mkdir(parents=True)
    paths.create(manifest=job.manifest, key=job.key)
    paths.claim.mkdir()
    paths.owner.write_text('{"job":"7","node":"far1"}')
    found = rig.backend().poll([rig.attempt(job, "7")])[job.name]
    assert (found.seen, found.node) == (Seen.RUNNING, "far1")
    (paths.dir / "exit.json").write_text('{"cause":"judge","status":1,"job":"7","node":"far1"}')
    assert seen(rig, job) is Seen.ENDED


@pytest.mark.parametrize("accounting", [False, True])
def test_a_list_that_was_cut_at_a_lines_end_makes_nobody_vanish(rig: Rig, accounting: bool) -> None:
    """A cache before squeue, or what carries its answer, leaves out the end of the list and says that all is well."""
    site = dataclasses.replace(rig.site, slurm=dataclasses.replace(rig.site.slurm, accounting=accounting))
    backend = SlurmBackend(site, eval_dir=rig.eval_dir, environ=rig.environ)
    first, cut = rig.job(), rig.job()
    attempts = [rig.attempt(first, "7"), rig.attempt(cut, "8")]
    rig.says("squeue", f"echo '7|{first.name}|RUNNING|1|2|n1|None'")
    rig.says("scontrol", f"echo 'JobId=8 JobName={cut.name} UserId=kb(1) JobState=RUNNING NodeList=n2'")
    for _ in range(3):
        assert {name: one.seen for name, one in backend.poll(attempts).items()} == {first.name: Seen.RUNNING}
    assert [len(rig.calls(tool)) for tool in ("squeue", "scontrol")] == [3, 3]
    # a controller that doesn't answer denies nothing
    rig.says("scontrol", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert cut.name not in backend.poll(attempts)
    # what it denies is gone, and that is asked once
    rig.says("scontrol", UNHEARD_OF)
    for _ in range(3):
        assert backend.poll(attempts)[cut.name].seen is Seen.ABSENT
    assert rig.calls("scontrol")[3:] == ["show job --oneliner 8"] * 2
    # and so is one whose number is another's now
    again = SlurmBackend(site, eval_dir=rig.eval_dir, environ=rig.environ)
    rig.says("scontrol", "echo 'JobId=8 JobName=of-somebody-else UserId=kb(1) JobState=RUNNING'")
    assert again.poll(attempts)[cut.name].seen is Seen.ABSENT


def test_a_job_has_the_state_of_the_last_look_and_asking_for_it_calls_nothing(rig: Rig) -> None:
    """submitit's job is where a state is asked; the look is ours, one for all."""
    backend = rig.backend()
    jobs = [rig.job() for _ in range(3)]
    attempts = [rig.attempt(job, str(number)) for number, job in enumerate(jobs)]
    shown = "; ".join(f"echo '{number}|{job.name}|RUNNING|1|2|n1|None'" for number, job in enumerate(jobs[:2]))
    rig.says("squeue", shown)
    rig.says("sacct", f"echo '2|{jobs[2].name}|NODE_FAIL|0:0|1|2|3|n1|None'")
    found = backend.poll(attempts)
    states = [backend.job(job.name, Handle(str(number))).state for number, job in enumerate(jobs)]
    assert states == ["RUNNING", "RUNNING", "NODE_FAIL"]
    assert [found[job.name].seen for job in jobs] == [Seen.RUNNING, Seen.RUNNING, Seen.ENDED]
    rig.says("squeue", "exit 1")
    backend.poll(attempts)
    assert {backend.job(job.name, Handle(str(number))).state for number, job in enumerate(jobs)} == {"UNKNOWN"}
    assert (len(rig.calls("squeue")), len(rig.calls("sacct"))) == (2, 1)


def test_a_vanished_job_is_looked_up_once_for_all(rig: Rig) -> None:
    jobs = [rig.job() for _ in range(5)]
    rig.says("sacct", "\n".join(f"echo '{n}|{job.name}|NODE_FAIL|0:0|1|2|3|n1|None'" for n, job in enumerate(jobs, 1)))
    backend = rig.backend()
    found = backend.poll([rig.attempt(job, str(n)) for n, job in enumerate(jobs, 1)])
    assert {sighting.ending for sighting in found.values()} == {Ending.NODE_FAILURE}
    assert (len(rig.calls("squeue")), len(rig.calls("sacct"))) == (1, 1)
    assert backend.calls() == {"squeue": 1, "sacct": 1}
    assert backend.poll([]) == {}
    assert len(rig.calls("squeue")) == 1, "nothing open, nobody asked"


@pytest.mark.parametrize(
    ("sbatch", "error"),
    [
        ("echo 12; exit 1", BackendUnclear),
        ("echo garbage", BackendUnclear),
        ("sleep 60", BackendUnclear),
        ("echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1", BackendUnclear),
        ("kill -9 $$", BackendUnclear),
        (
            "echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received' >&2; exit 1",
            BackendUnclear,
        ),
        (
            "echo 'sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying' >&2; exit 255",
            BackendUnclear,
        ),
        ("echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1", BackendRefused),
    ],
)
def test_what_sbatch_says_is_a_no_or_unclear(rig: Rig, sbatch: str, error: type[BackendTrouble]) -> None:
    rig.says("sbatch", sbatch)
    with pytest.raises(error):
        rig.backend().submit(rig.job())


def test_a_silent_controller_is_left_alone_and_asked_again_later(rig: Rig) -> None:
    watch = [1000.0]
    poll = dataclasses.replace(rig.site.poll, min_interval_s=10.0)
    site = dataclasses.replace(rig.site, poll=poll)
    backend = SlurmBackend(site, eval_dir=rig.eval_dir, environ=rig.environ, monotonic=lambda: watch[0])
    rig.says(
        "sbatch", "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller' >&2; exit 1"
    )
    with pytest.raises(BackendUnclear):
        backend.submit(rig.job())
    for _ in range(5):
        with pytest.raises(BackendRefused) as later:
            backend.submit(rig.job())
        assert not later.value.permanent
        assert backend.find(rig.job().name).seen is Seen.UNKNOWN
    assert (len(rig.calls("sbatch")), len(rig.calls("squeue"))) == (1, 0)
    rig.says("sbatch", "echo 12")
    watch[0] += 60
    assert [backend.submit(rig.job()) for _ in range(2)] == ["12", "12"]


def test_cancels_searches_and_submissions_keep_to_the_sites_calls_per_minute(rig: Rig) -> None:
    watch = [1000.0]
    poll = dataclasses.replace(rig.site.poll, calls_per_minute=6.0)
    site = dataclasses.replace(rig.site, poll=poll)
    backend = SlurmBackend(site, eval_dir=rig.eval_dir, environ=rig.environ, monotonic=lambda: watch[0])
    rig.says("sbatch", "echo 12")
    jobs = [rig.job() for _ in range(9)]
    assert backend.submit(jobs[0]) == "12"
    refused = {}
    for job in jobs:
        try:
            backend.cancel(rig.attempt(job, "12"))
        except BackendRefused as error:
            refused[job.name] = error.permanent
    assert refused == {job.name: False for job in jobs[4:]}
    assert AttemptPaths(root=backend.root, name=jobs[0].name).cancelled.exists()
    # One call is left, for a look: neither a search nor a submission takes it
    assert backend.find(jobs[1].name).seen is Seen.UNKNOWN
    with pytest.raises(BackendRefused, match="used up"):
        backend.submit(jobs[2])
    assert not {job.name for job in jobs} & set(backend.poll([rig.attempt(jobs[3], "12")]))
    assert backend.calls() == {"sbatch": 1, "scancel": 4, "squeue": 1, "sacct": 1}
    watch[0] += 60
    assert backend.find(jobs[1].name).seen is Seen.ABSENT
    backend.cancel(rig.attempt(jobs[4], "12"))


# What a Slurm says to --test-only: on stderr, with the number of a job that never is.
WOULD_START = """\
cat >"$0.told"
case "$*" in
    *--test-only*) ;;
    *) echo 12; exit ;;
esac
echo 'sbatch: Job 31 to start at 1700009000 using 1 processors on nodes n1 in partition gpu' >&2
"""


def test_a_trial_is_told_the_launchs_own_script_and_submits_nothing(rig: Rig) -> None:
    rig.says("sbatch", WOULD_START)
    backend, job = rig.backend(), rig.finished(rig.job())
    assert isinstance(backend, Foresees)
    assert job.script is not None
    assert backend.foresee(job.script) == datetime.fromtimestamp(1700009000, UTC)
    assert rig.calls("sbatch") == ["--test-only"]
    told = (rig.bin_dir / "sbatch.told").read_text()
    assert told == job.script
    assert "#SBATCH --gres=gpu:1\n" in told and "#SBATCH --exclude=n1\n" in told
    assert not (rig.folder / "root" / "attempts").exists(), "nothing is prepared for a job that isn't sent"
    assert backend.calls() == {"sbatch": 1}


@pytest.mark.parametrize(
    "sbatch",
    [
        "cat >/dev/null; echo 'allocation failure: Requested node configuration is not available' >&2; exit 1",
        "cat >/dev/null; echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "cat >/dev/null; echo \"sbatch: unrecognized option '--test-only'\" >&2; exit 1",
        f"{WOULD_START}exit 1",
        "cat >/dev/null; echo 'sbatch: Job 3 to start at soon' >&2",
        "cat >/dev/null; echo 12",
        "exit 0",
        "sleep 60",
        "kill -9 $$",
    ],
)
def test_a_trial_that_comes_to_nothing_is_no_word_and_no_trouble(rig: Rig, sbatch: str) -> None:
    rig.says("sbatch", sbatch)
    assert rig.backend().foresee("#!/bin/sh\n" + "#" * 200_000) is None
    (rig.bin_dir / "sbatch").unlink()
    assert rig.backend().foresee("#!/bin/sh\n") is None


def test_a_trial_is_not_worth_the_calls_that_a_launch_needs_nor_a_rest(rig: Rig) -> None:
    watch = [1000.0]
    poll = dataclasses.replace(rig.site.poll, calls_per_minute=3.0, min_interval_s=10.0)
    site = dataclasses.replace(rig.site, poll=poll)
    backend = SlurmBackend(site, eval_dir=rig.eval_dir, environ=rig.environ, monotonic=lambda: watch[0])
    rig.says("sbatch", WOULD_START)
    assert backend.foresee("#!/bin/sh\n") is not None
    assert backend.foresee("#!/bin/sh\n") is None, "one call for a launch, one for a look"
    assert backend.submit(rig.job()) == "12"
    watch[0] += 60
    rig.says("squeue", "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1")
    backend.poll([rig.attempt(rig.job(), "7")])
    assert backend.foresee("#!/bin/sh\n") is None
    assert len(rig.calls("sbatch")) == 2


def test_accounting_that_is_away_keeps_nothing_from_being_submitted(rig: Rig) -> None:
    rig.says("sacct", "echo 'sacct: error: no slurmdbd' >&2; exit 1")
    rig.says("sbatch", "echo 12")
    backend = rig.backend()
    assert backend.find(rig.job().name).seen is Seen.UNKNOWN
    assert backend.submit(rig.job()) == "12"


def test_a_missing_sbatch_started_nothing(rig: Rig) -> None:
    (rig.bin_dir / "sbatch").unlink()
    with pytest.raises(BackendRefused) as refused:
        rig.backend().submit(rig.job())
    assert not refused.value.permanent


def test_when_no_node_is_left_one_that_failed_before_is_taken(rig: Rig) -> None:
    no = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    rig.says("sbatch", f'for last; do :; done\nif grep -q exclude "$last"; then echo "{no}" >&2; exit 1; fi\necho 31')
    assert rig.backend().submit(rig.job()) == "31"
    assert len(rig.calls("sbatch")) == 2


def test_the_second_submission_of_an_attempt_finds_the_first(rig: Rig) -> None:
    rig.says("sbatch", "echo 31")
    job = rig.job()
    assert [rig.backend().submit(job) for _ in range(3)] == ["31"] * 3
    assert len(rig.calls("sbatch")) == 1


def test_commands_get_a_clean_environment(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("SBATCH_ACCOUNT", "x")
    rig.says("sbatch", "echo 5")
    backend = rig.backend()
    job = rig.job()
    backend.submit(job)
    backend.poll([rig.attempt(job, "5")])
    for tool in ("sbatch", "squeue"):
        names = {line.partition("=")[0] for line in (rig.folder / f"{tool}.env").read_text().splitlines()}
        assert names <= {"PATH", "HOME", "LC_ALL", "SLURM_TIME_FORMAT", "PWD", "SHLVL", "_", "OLDPWD"}, names


def test_of_two_jobs_of_one_name_the_one_that_claimed_is_ours_and_the_other_is_ended(rig: Rig) -> None:
    job = rig.job()
    rig.says("sbatch", "exit 1")
    with pytest.raises(BackendUnclear):
        rig.backend().submit(job)
    rig.says("squeue", f"echo '8|{job.name}|PENDING|1|2||None'; echo '9|{job.name}|RUNNING|1|2|n1|None'")
    assert rig.backend().find(job.name).handle == "8", "the oldest, while none has claimed"
    assert rig.calls("scancel") == ["--quiet 9"]
    claim = rig.folder / "root" / "attempts" / job.name / "claim"
    claim.mkdir()
    (claim / "owner.json").write_text(json.dumps({"job": "9", "node": "n1", "at": 5}))
    found = rig.backend().find(job.name)
    assert (found.handle, found.seen) == ("9", Seen.RUNNING)
    assert rig.calls("scancel")[-1] == "--quiet 8"


def test_a_report_that_had_no_room_is_told_by_what_is_left_of_it(rig: Rig) -> None:
    """The judge's own words lie on the disk that is full; its exit status, if anything, came through."""
    job = rig.job()
    rig.says("sbatch", "echo 7")
    rig.backend().submit(rig.finished(job))
    folder = rig.folder / "root" / "attempts" / job.name
    (folder / "claim").mkdir()
    (folder / "claim" / "owner.json").write_text(json.dumps({"job": "7", "node": "n1", "at": 4}))
    said = {"cause": "judge", "status": UNWRITTEN, "began": True, "why": "", "job": "7", "node": "n1", "at": 5}
    (folder / "exit.json").write_text(json.dumps(said))
    ended = rig.backend().poll([rig.attempt(job, "7")])[job.name]
    assert (ended.ending, ended.reason) == (
        Ending.NO_REPORT,
        "the shared root was full or read-only when the judge wrote its report on n1",
    )


def test_the_twin_that_found_the_claim_taken_ends_nothing(rig: Rig) -> None:
    job = rig.job()
    rig.says("sbatch", "echo 8")
    rig.backend().submit(job)
    claim = rig.folder / "root" / "attempts" / job.name / "claim"
    claim.mkdir()
    (claim / "owner.json").write_text(json.dumps({"job": "9", "node": "n1", "at": 5}))
    rig.says("squeue", f"echo '8|{job.name}|COMPLETED|1|2|n2|None'; echo '9|{job.name}|RUNNING|1|2|n1|None'")
    found = rig.backend().poll([rig.attempt(job, "8")])[job.name]
    assert (found.seen, found.handle, found.node) == (Seen.RUNNING, "9", "n1")


def test_cancelling_asks_by_id_or_by_name_and_a_job_that_is_gone_is_fine(rig: Rig) -> None:
    job = rig.job()
    rig.says("scancel", "echo 'scancel: error: Kill job error on job id 7: Invalid job id specified' >&2; exit 1")
    rig.backend().cancel(rig.attempt(job, "7"))
    rig.backend().cancel(rig.attempt(job))
    assert rig.calls("scancel") == ["--quiet 7", f"--quiet --name={job.name}"]
    rig.says("scancel", "echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(BackendTrouble):
        rig.backend().cancel(rig.attempt(job, "7"))


def test_the_job_that_claimed_is_the_one_that_is_cancelled(rig: Rig) -> None:
    """An attempt's noted handle can be that of a twin that found the claim taken: ending that ends nothing."""
    job = rig.job()
    rig.says("sbatch", "echo 7")
    rig.backend().submit(job)
    claim = AttemptPaths(root=rig.folder / "root" / "attempts", name=job.name).claim
    claim.mkdir()
    (claim / "owner.json").write_text('{"job":"6","node":"n1","at":1}')
    rig.backend().cancel(rig.attempt(job, "7"))
    assert sorted(rig.calls("scancel")[-1].split()) == ["--quiet", "6", "7"]


def test_what_a_full_disk_cut_short_in_an_attempts_folder_is_nothing(rig: Rig) -> None:
    job = rig.job()
    rig.says("sbatch", "echo 7")
    rig.backend().submit(job)
    paths = AttemptPaths(root=rig.folder / "root" / "attempts", name=job.name)
    paths.claim.mkdir()
    (paths.claim / "job").write_text("12")
    paths.owner.write_text('{"job":"123","node":"n')
    paths.exit.write_text('{"cause":"judge","status":0,"beg')
    found = rig.backend().find(job.name)
    assert (found.seen, found.handle, found.node) == (Seen.RUNNING, "7", None), "claimed, and by whom isn't known yet"
    (paths.claim / "job").write_text("123\n")
    assert rig.backend().find(job.name).handle == "123"


def test_through_ssh_nothing_is_asked_and_keys_only_are_used(rig: Rig) -> None:
    far = Submission(
        via="ssh",
        host="login",
        user="kb",
        port=2222,
        identity="/k/id",
        proxy_jump="jump",
        control_path="/run/kb-%C",
        known_hosts="/k/known",
    )
    argv = Commands(dataclasses.replace(rig.site, submit=far)).argv(
        "squeue", ["--me", "-o", "%A|%j $(id)"], timeout_s=30
    )
    text = " ".join(argv)
    for needed in (
        "BatchMode=yes",
        "PasswordAuthentication=no",
        "StrictHostKeyChecking=yes",
        "ControlMaster=auto",
        "ControlPath=/run/kb-%C",
        "ProxyJump=jump",
        "IdentitiesOnly=yes",
        "ForwardAgent=no",
        "-l kb login",
    ):
        assert needed in text
    assert argv[0] == "ssh"
    assert argv[-1].endswith("squeue --me -o '%A|%j $(id)'"), "one word for the far shell, quoted"


def test_no_variable_of_the_far_account_changes_what_is_asked_or_submitted(rig: Rig) -> None:
    """sbatch's variables win over the script's own lines: one left in an account's profile would change every job."""
    far = dataclasses.replace(rig.site, submit=Submission(via="ssh", host="login", user="kb"))
    rig.says("sbatch", "")
    *_, words = Commands(far).argv("sbatch", ["--parsable", "a b"], timeout_s=30)
    environ = rig.environ | {"SBATCH_CONSTRAINT": "old", "SBATCH_TIMELIMIT": "1", "SLURM_CONF": "/old", "USER": "kb"}
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-c", words], env=environ, check=True)
        told = (rig.folder / "sbatch.env").read_text()
        assert rig.calls("sbatch")[-1] == "--parsable a b"
        assert not {line for line in told.splitlines() if line.startswith(("SBATCH_", "SLURM_C", "SLURM_J"))}, told
        assert f"HOME={rig.folder}\n" in told
        assert "SLURM_TIME_FORMAT=%s" in told


def test_a_job_for_nobody_is_refused(rig: Rig) -> None:
    job = dataclasses.replace(rig.job(), script=None)
    with pytest.raises(BackendRefused, match="no script"):
        rig.backend().submit(job)
    assert rig.calls("sbatch") == []
    assert JobName(job.name)


def test_folders_of_attempts_that_ended_long_ago_go_and_those_that_are_open_stay(rig: Rig) -> None:
    rig.says("sbatch", "echo 7")
    backend, day, now = rig.backend(), timedelta(days=1), datetime.now(UTC)
    assert backend.prune(now, keep=[]) == 0, "nothing was ever submitted"
    old, still_open = (rig.finished(rig.job()) for _ in range(2))
    for job in (old, still_open):
        backend.submit(job)
    (backend.root / ".new-kb-half").mkdir()
    assert backend.prune(now - day, keep=[]) == 0
    assert {entry.name for entry in backend.root.iterdir()} == {old.name, still_open.name, ".new-kb-half"}
    assert backend.prune(now + day, keep=[still_open.name]) == 1
    assert {entry.name for entry in backend.root.iterdir()} == {still_open.name}
    assert rig.backend().collect(rig.attempt(still_open)) is None


@pytest.fixture
def anyone() -> Iterator[tuple[Rig, JobSpec]]:
    """The rig of an ordinary user, and a job."""

    def prepared(folder: Path) -> tuple[Rig, JobSpec]:
        rig = Rig(folder)
        rig.says("sbatch", "echo 7")
        return rig, rig.finished(rig.job())

    with ordinary.user(prepared) as found:
        yield found


@pytest.mark.parametrize("locked", ["", "out", "claim", "scratch", "out/artifacts"])
def test_a_job_that_locks_its_folder_is_settled_and_pruned_all_the_same(
    anyone: tuple[Rig, JobSpec], locked: str
) -> None:
    rig, job = anyone
    backend = rig.backend()
    backend.submit(job)
    attempt, paths = rig.attempt(job, "7"), AttemptPaths(root=backend.root, name=job.name)
    for folder in (paths.claim, paths.artifacts):
        folder.mkdir()
    paths.owner.write_text(json.dumps({"job": "7", "node": "n1", "at": 4}))
    paths.report.write_bytes(b"sealed")
    (paths.artifacts / "trace.json").write_text("{}")
    said = {"cause": "judge", "status": 0, "began": True, "why": "", "job": "7", "node": "n1", "at": 5}
    paths.exit.write_text(json.dumps(said))

    def lock() -> None:
        (paths.dir / locked).chmod(0)

    lock()
    assert backend.poll([attempt])[job.name].ending is Ending.REPORTED
    lock()
    assert backend.find(job.name).ending is Ending.REPORTED
    lock()
    assert backend.collect(attempt) == b"sealed"
    lock()
    assert backend.artifacts(attempt, ["trace.json"]) == {"trace.json": b"{}"}
    lock()
    backend.cancel(attempt)
    assert paths.cancelled.exists()
    lock()
    assert backend.prune(datetime.now(UTC) + timedelta(days=1), keep=[]) == 1
    assert list(backend.root.iterdir()) == []


REHEARSED = """
import sys
sys.path[:0] = sys.argv[4:]
from pathlib import Path
from kbslurm.config import shared_folders, sites
from kbslurm.backends.slurm.doctor import rehearsal
site, eval_dir, folder = sites.load(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])
rehearsal.prepare(site, site.gpus["T4"], folder, templates=shared_folders.path("sbatch_templates"), eval_dir=eval_dir)
"""


def test_a_rehearsal_is_written_whatever_the_operators_locale(rig: Rig) -> None:
    folder = rig.folder / "rehearsal"
    folder.mkdir()
    file = rig.folder / "site.toml"
    file.write_text(file.read_text().replace("[paths]", 'exports = { MOTTO = "…" }\n[paths]', 1))
    # Without -S a virtual environment below a path with other letters keeps Python itself from starting.
    argv = [sys.executable, "-S", "-c", REHEARSED, str(rig.folder / "site.toml"), str(rig.eval_dir), str(folder)]
    argv += [path for path in sys.path if path]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(argv, env={**os.environ, **ascii_only}, check=True)
    assert "…" in (folder / rehearsal.SCRIPT).read_text(encoding="utf-8")


def test_harnesses_of_former_versions_go_when_they_are_old_and_no_attempt_is_to_run_them(rig: Rig) -> None:
    rig.says("sbatch", "echo 7")
    backend, day, now = rig.backend(), timedelta(days=1), datetime.now(UTC)
    shared = Path(rig.site.paths.shared_root)
    current = Path(harness_folder(rig.site, rig.eval_dir))
    names = ("eval-0000000000000001", "eval-0000000000000002", ".eval-half-made-0a0b0c0d", "images")
    for name in names:
        (shared / name / "kbslurm_eval").mkdir(parents=True)
    still_open = rig.finished(rig.job())
    script = (still_open.script or "").replace(current.name, names[1])
    backend.submit(dataclasses.replace(still_open, script=script))

    def left() -> set[str]:
        return {entry.name for entry in shared.iterdir()} - {"attempts"}

    assert backend.prune(now - day, keep=[still_open.name]) == 0
    assert left() == {current.name, *names}, "a week hasn't passed"
    asked = len(rig.calls("sbatch"))
    locked = backend.root / still_open.name / "locked.sh"
    locked.symlink_to(backend.root / "nowhere")
    assert backend.prune(now + day, keep=[still_open.name]) == 0
    assert left() == {current.name, *names}, "a script that can't be read may name any of them"
    locked.unlink()
    assert backend.prune(now + day, keep=[still_open.name]) == 0
    assert left() == {current.name, names[1], "images"}
    assert backend.prune(now + day, keep=[]) == 1
    assert left() == {current.name, "images"}, "nobody is to run that any more; the current one stays, however old"
    assert rig.calls("squeue") == rig.calls("sacct") == rig.calls("scontrol") == []
    assert len(rig.calls("sbatch")) == asked


def ran(rig: Rig, job: JobSpec, number: str) -> dict[str, object]:
    """What Slurm does once there is room: run the script that was sent, as this job. How it ended."""
    directory = job.directory
    assert directory is not None and job.script is not None
    environ = {"PATH": os.defpath, "SLURM_JOB_ID": number, "SLURMD_NODENAME": "n1"}
    log = subprocess.run(
        ["sh"], input=job.script, text=True, env=environ, capture_output=True, check=False, timeout=120
    )
    told: dict[str, object] = json.loads((directory / "exit.json").read_text())
    return {**told, "log": log.stderr}


def test_a_job_that_waits_through_an_upgrade_runs_what_it_was_sent_with(rig: Rig) -> None:
    # Given a job in the queue, a service that is started anew with another harness, and a week that passes
    rig.says("sbatch", "echo 7")
    old = rig.finished(rig.job())
    rig.backend().submit(old)
    with (rig.eval_dir / SUPERVISOR).open("a") as file:
        file.write('say "this is the new one"\n')
    rig.says("sbatch", "echo 8")
    new = rig.finished(rig.job())
    upgraded = rig.backend()
    upgraded.submit(new)
    harnesses = sorted(path for path in (rig.folder / "root").glob("eval-*"))
    assert len(harnesses) == 2
    for harness in harnesses:
        os.utime(harness, (1, 1))
    # When harnesses that nobody needs any more are removed, then each job still runs by its own
    upgraded.prune(datetime.now(UTC) - timedelta(days=1), keep=[old.name, new.name])
    assert sorted((rig.folder / "root").glob("eval-*")) == harnesses
    first, second = ran(rig, old, "7"), ran(rig, new, "8")
    assert [told["cause"] for told in (first, second)] == ["judge", "judge"]
    assert ["this is the new one" in str(told["log"]) for told in (first, second)] == [False, True]
    found = upgraded.poll([rig.attempt(old, "7"), rig.attempt(new, "8")])
    assert {one.ending for one in found.values()} == {Ending.REPORTED}


@pytest.mark.parametrize(
    ("fate", "why"),
    [("changed", "supervise.sh was changed after this job was sent"), ("pruned", "supervise.sh is gone")],
)
def test_a_job_whose_harness_was_tampered_with_is_the_nodes_fault_and_never_runs(rig: Rig, fate: str, why: str) -> None:
    rig.says("sbatch", "echo 7")
    job = rig.finished(rig.job())
    backend = rig.backend()
    backend.submit(job)
    harness = Path(harness_folder(rig.site, rig.eval_dir))
    if fate == "changed":
        (harness / SUPERVISOR).chmod(0o644)
        with (harness / SUPERVISOR).open("a") as file:
            file.write("# a comment\n")
    else:
        shutil.rmtree(harness)
    told = ran(rig, job, "7")
    assert (told["cause"], told["why"]) == ("setup", f"{harness.name}/{why}")
    ended = backend.poll([rig.attempt(job, "7")])[job.name]
    assert (ended.ending, ended.reason) == (
        Ending.BOOT_FAILURE,
        f"the node couldn't prepare the job: {harness.name}/{why} on n1",
    )
    assert not AttemptPaths(root=backend.root, name=job.name).heartbeat.exists()


@pytest.mark.parametrize("staged", [False, True])
def test_a_harness_that_was_upgraded_under_a_running_service_is_never_sent_under_the_old_name(
    rig: Rig, staged: bool
) -> None:
    rig.says("sbatch", "echo 7")
    backend, first, second = rig.backend(), rig.finished(rig.job()), rig.finished(rig.job())
    if staged:
        backend.submit(first)
    with (rig.eval_dir / "__main__.py").open("a") as file:
        file.write("# the new one\n")
    if staged:
        backend.submit(second)
        assert len(rig.calls("sbatch")) == 2, "the one that it names is there"
        return
    with pytest.raises(BackendRefused, match="was changed while this service ran") as refusal:
        backend.submit(first)
    assert (refusal.value.permanent, bool(refusal.value.hint)) == (False, True)
    assert rig.calls("sbatch") == []
    assert [entry.name for entry in (rig.folder / "root").iterdir()] == []
    rig.backend().submit(rig.finished(rig.job()))
    assert len(rig.calls("sbatch")) == 1, "a restarted service sends it"


def test_a_harness_that_is_used_is_never_old(rig: Rig) -> None:
    rig.says("sbatch", "echo 7")
    rig.backend().submit(rig.finished(rig.job()))
    current = Path(harness_folder(rig.site, rig.eval_dir))
    os.utime(current, (1, 1))
    rig.backend().submit(rig.finished(rig.job()))
    assert current.stat().st_mtime > 1
