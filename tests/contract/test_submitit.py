"""submitit 1.5's private hooks, each as we use it: a release that changes one is found here, not on a cluster."""

from __future__ import annotations

import inspect
import pickle
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.core import core, utils
from submitit.slurm import slurm

from kbslurm.backends.slurm.executor import CATCHING, KbExecutor, KbJob, KbWatcher, SbatchSaid, jobs_of
from kbslurm.backends.slurm.reader import JobRow, Phase, phase_of

SCRIPT = "#!/bin/sh\necho hello\n"


def executor(folder: Path, sbatch: str) -> KbExecutor:
    """An executor whose sbatch is this shell text; the script's path is its $1."""
    folder.mkdir(mode=0o700)
    return KbExecutor(folder, script=SCRIPT, sbatch=("sh", "-c", sbatch, "sbatch", "@SCRIPT@"))


def test_the_pinned_release_is_installed() -> None:
    assert version("submitit").startswith("1.5.")
    assert tuple(map(int, version("submitit").split(".")[:3])) >= (1, 5, 4)


@pytest.mark.parametrize(
    ("owner", "hook", "parameters"),
    [
        (slurm.SlurmExecutor, "_make_submission_file_text", ["self", "command", "uid"]),
        (slurm.SlurmExecutor, "_make_submission_command", ["self", "submission_file_path"]),
        (slurm.SlurmExecutor, "_get_job_id_from_submission_command", ["string"]),
        (slurm.SlurmExecutor, "_num_tasks", ["self"]),
        (slurm.SlurmExecutor, "_internal_process_submissions", ["self", "delayed_submissions"]),
        (slurm.SlurmExecutor, "affinity", []),
        (core.PicklingExecutor, "_submit_command", ["self", "command"]),
        (core.PicklingExecutor, "_write_job_id", ["self", "job_id", "uid"]),
        (core.PicklingExecutor, "_set_job_permissions", ["folder"]),
        (core.PicklingExecutor, "_throttle", ["self"]),
        (core.InfoWatcher, "register_job", ["self", "job_id"]),
        (core.Job, "_get_outcome_and_result", ["self"]),
        (core.Job, "done", ["self", "force_check"]),
        (core.InfoWatcher, "update_if_long_enough", ["self", "mode"]),
        (core.InfoWatcher, "get_info", ["self", "job_id", "mode"]),
        (slurm.SlurmInfoWatcher, "get_state", ["self", "job_id", "mode"]),
        (core.Job, "cancel", ["self", "check"]),
        (core.InfoWatcher, "is_done", ["self", "job_id", "mode"]),
        (slurm.SlurmInfoWatcher, "_make_command", ["self"]),
    ],
)
def test_a_hook_has_the_shape_that_we_override(owner: type, hook: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, hook)).parameters) == parameters


def test_our_text_is_what_is_submitted_and_the_id_is_kept_before_anything_else(tmp_path: Path) -> None:
    folder = tmp_path / "attempt"
    one = executor(folder, 'cp "$1" "$1.seen"; mv "$1.seen" "$(dirname "$1")/seen"; echo "1234;cluster"')
    job = one.submit_rendered()
    assert job.job_id == "1234"
    assert (folder / "seen").read_text() == SCRIPT
    assert (folder / "1234_submission.sh").read_text() == SCRIPT
    assert (folder / "job_id").read_text() == "1234\n"
    assert isinstance(job, KbJob)


def test_nothing_is_ever_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("something was pickled")

    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.setattr(pickle, name, refused)
    folder = tmp_path / "attempt"
    job = executor(folder, "echo 5").submit_rendered()
    assert not list(folder.glob("*.pkl"))
    with pytest.raises(NotImplementedError):
        job._get_outcome_and_result()
    with pytest.raises(NotImplementedError):
        executor(tmp_path / "other", "echo 5").submit(print, "x")
    with pytest.raises(NotImplementedError):
        executor(tmp_path / "third", "echo 5").map_array(print, [1])


@pytest.mark.parametrize(
    ("sbatch", "status", "text"),
    [
        ("echo 'sbatch: error: no' >&2; exit 1", 1, "sbatch: error: no"),
        ("echo 'sbatch: error: odd' >&2; exit 0", 0, "sbatch: error: odd"),
        ("echo Submitted batch job 7", 0, "Submitted batch job 7"),
        ("echo 77; exit 1", 1, "77"),
        ("true", 0, ""),
    ],
)
def test_an_answer_without_an_id_says_all(tmp_path: Path, sbatch: str, status: int, text: str) -> None:
    with pytest.raises(SbatchSaid) as said:
        executor(tmp_path / "attempt", sbatch).submit_rendered()
    assert said.value.status == status
    assert said.value.text == text
    assert not (tmp_path / "attempt" / "job_id").exists()


def test_a_warning_beside_the_id_is_no_trouble(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = executor(tmp_path / "attempt", "echo 'sbatch: warning: 12 things' >&2; echo 42")
    assert one.submit_rendered().job_id == "42"
    assert capfd.readouterr() == ("", "")


def row(id_: str, state: str, name: str = "kb-a") -> JobRow:
    return JobRow(id=id_, name=name, state=state, node="n1")


def test_a_job_is_known_by_folder_and_id_and_its_state_is_what_the_last_look_showed(tmp_path: Path) -> None:
    watcher = KbWatcher()
    job = jobs_of(watcher)(folder=tmp_path / "kb-a", job_id="7")
    assert (job.state, job.done(), job.row) == ("UNKNOWN", False, None)
    watcher.feed([row("7", "RUNNING")])
    assert (job.state, job.done(), job.get_info()["NodeList"]) == ("RUNNING", False, "n1")
    watcher.feed([row("7", "COMPLETED"), row("7", "RUNNING")])
    assert (job.state, job.done(force_check=True)) == ("COMPLETED", True), "the queue's row comes first"
    watcher.feed([row("7", "RUNNING")])
    assert not job.done(), "no end is kept: a node that comes back may bring a job back"
    watcher.feed([row("7", "COMPLETED", name="kb-b")])
    assert (job.state, job.done()) == ("UNKNOWN", False), "Slurm has given its ID to another job"
    watcher.feed([])
    assert (job.state, job.done()) == ("UNKNOWN", False), "missing isn't finished"
    assert not watcher._registered, "submitit's register grows for ever"
    assert watcher.num_calls == 0
    with pytest.raises(NotImplementedError):
        job.cancel()


def test_two_sites_jobs_of_one_id_have_a_state_each(tmp_path: Path) -> None:
    here, there = KbWatcher(), KbWatcher()
    here.feed([row("7", "RUNNING")])
    there.feed([row("7", "FAILED")])
    states = [jobs_of(watcher)(folder=tmp_path / "kb-a", job_id="7").state for watcher in (here, there)]
    assert states == ["RUNNING", "FAILED"]


STATES = (
    "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT POWER_UP_NODE LAUNCH_FAILED "
    "RECONFIG_FAIL EXPEDITING RUNNING SUSPENDED COMPLETING RESIZING SIGNALING STAGE_OUT STOPPED UPDATE_DB BOOT_FAIL "
    "CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT REVOKED ENCHANTED"
).split()


def test_submitits_own_watcher_takes_odd_states_for_an_end_and_ours_only_an_end(tmp_path: Path) -> None:
    """The trial that decides what of it we keep: its own reading breaks law 4, missing isn't finished."""
    stock, ours = slurm.SlurmInfoWatcher(), KbWatcher()
    stock._info_dict = {state: {"State": state} for state in STATES}
    ours.feed([row(str(number), state) for number, state in enumerate(STATES)])
    for number, state in enumerate(STATES):
        job = jobs_of(ours)(folder=tmp_path / "kb-a", job_id=str(number))
        assert (job.state, job.done()) == (state, phase_of(state) is Phase.ENDED)
    told = {state: stock.is_done(state, mode="cache") for state in STATES}
    too_soon = {state for state in STATES if told[state] and phase_of(state) is not Phase.ENDED}
    never = {state for state in STATES if not told[state] and phase_of(state) is Phase.ENDED}
    assert {"CONFIGURING", "SUSPENDED", "REQUEUE_HOLD", "ENCHANTED"} <= too_soon
    assert never == {"PREEMPTED"}


def test_srun_need_not_be_there_and_nothing_is_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    one = executor(tmp_path / "attempt", "echo 1")
    assert one._throttling == 0
    assert KbExecutor.affinity() > 0


def test_submitits_arrays_still_bypass_subclasses() -> None:
    """Why map_array is refused: it makes a plain SlurmExecutor whatever the class."""
    source = inspect.getsource(slurm.SlurmExecutor._internal_process_submissions)
    assert "array_ex = SlurmExecutor(" in source
    assert issubclass(KbExecutor, submitit.SlurmExecutor)


def test_a_command_function_has_no_time_out_so_ours_is_in_the_command() -> None:
    assert "timeout" not in inspect.signature(utils.CommandFunction.__init__).parameters
    assert CATCHING[:2] == ("sh", "-c")
