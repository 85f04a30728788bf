"""What a keeper does on its node, by its real script, with commands that answer what the test cluster's can't: a GPU
that somebody uses, an srun that is refused."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.config import shared_folders, sites
from kbslurm.domain.keepers import Keeper, KeeperState
from kbslurm.domain.run import JobName, KeeperId, KeeperName
from kbslurm.flow.script import KEEPER, keeper_script_for, keeper_writer, keepers_folder, supervisor_digest
from tests.contract.backend_suite import is_alive

SITE = """\
name = "here"
start = "{start_s}s"
[paths]
shared_root = "{root}"
[gpus.H100]
request = "--gres=gpu:h100:1"
vendor = "{vendor}"
image = "/nowhere.sif"
memory = "2G"
"""
NAME, ATTEMPT = KeeperName("kbk-keeper"), JobName("kb-attempt")
# An srun that runs the attempt's script and remembers what it was told.
SRUN = '#!/bin/sh\nprintf "%s\\n" "$@" >{root}/srun-argv\nfor last in "$@"; do :; done\n{what}\n'
SMI = (
    "#!/bin/sh\nfor word in $*; do case $word in\n"
    "*compute-apps*) cat {root}/gpu-pids; exit;;\n*memory*) cat {root}/gpu-mb; exit;;\nesac; done\n"
)


@dataclass
class Rig:
    """One keeper's script in a shell of its own."""

    root: Path
    vendor: str = "nvidia"
    idle_s: float = 300.0
    life_s: float = 3600.0
    clock_late_s: int = 0
    shell: str = "sh"
    image: str = "/nowhere.sif"
    start_s: int = 60
    between: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def folder(self) -> KeeperFolder:
        return KeeperFolder(root=self.root / "keepers", name=NAME)

    @property
    def attempt(self) -> Path:
        return self.root / "attempts" / ATTEMPT

    def srun(self, what: str) -> None:
        self.program("srun", SRUN.format(root=self.root, what=what))

    def gpu(self, pids: str = "", used_mb: int = 12) -> None:
        (self.root / "gpu-pids").write_text(pids)
        (self.root / "gpu-mb").write_text(f"{used_mb}\n")

    def start(self) -> None:
        self.program("nvidia-smi", SMI.format(root=self.root))
        (self.root / "site.toml").write_text(SITE.format(root=self.root, vendor=self.vendor, start_s=self.start_s))
        site = sites.load(self.root / "site.toml")
        assert keepers_folder(site) == self.folder.root
        self.folder.create()
        script = keeper_script_for(
            site,
            name=NAME,
            gpu="H100",
            directory=self.folder.dir,
            harness=shared_folders.eval_dir(),
            program=supervisor_digest(shared_folders.eval_dir(), KEEPER),
            idle_s=self.idle_s,
            life_s=self.life_s,
            templates=shared_folders.path("sbatch_templates"),
        )
        script = script.replace("export PATH=", f"export PATH={self.root}/bin:")
        script = script.replace("/nowhere.sif", self.image)
        script = script.replace("umask 077", f"umask 077\n{self.between}")
        ends_at = int(time.time() + self.life_s + self.clock_late_s)
        env = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_JOB_END_TIME": str(ends_at)}
        with (self.root / "said").open("wb") as out:
            self.processes.append(subprocess.Popen([self.shell, "-c", script], env=env, stdout=out, stderr=out))

    def post(self, limit_s: int = 60, job: str = 'mkdir "$PWD/claim"; echo {} >exit.json') -> None:
        self.attempt.mkdir(parents=True)
        (self.attempt / "job.sh").write_text(f"cd {self.attempt}\n{job}\n")
        self.folder.post(ATTEMPT, limit_s)

    def left(self) -> dict[str, Any]:
        """Why it left, once it has."""
        assert self.processes[-1].wait(timeout=60) in (0, 70, 76)
        return dict(json.loads(self.folder.paths.exit.read_text()))

    def end_of_attempt(self) -> dict[str, Any]:
        wait_until((self.attempt / "exit.json").exists)
        return dict(json.loads((self.attempt / "exit.json").read_text()))

    def program(self, name: str, text: str) -> None:
        (self.root / "bin").mkdir(exist_ok=True)
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(root=tmp_path)
    found.gpu()
    found.srun('sh "$last"')
    yield found
    for process in found.processes:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=60)


def wait_until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, "it never came to be so"
        time.sleep(0.02)


def test_a_step_gets_what_a_job_of_its_own_would_get_and_no_more(rig: Rig) -> None:
    rig.start()
    rig.post()
    assert rig.end_of_attempt() == {}
    wait_until(lambda: rig.folder.is_done(ATTEMPT))
    argv = (rig.root / "srun-argv").read_text().splitlines()
    assert {"--exact", "--mem=2048M", "--cpus-per-task=2", "--gres=gpu:h100:1", f"--job-name={ATTEMPT}"} <= set(argv)
    assert f"--export=KB_KEEPER={NAME},KB_STEP={ATTEMPT}" in argv and "--overlap" not in argv
    assert argv[-2:] == ["/bin/sh", f"{rig.attempt}/job.sh"]
    assert rig.folder.where(ATTEMPT) == "taken"


def test_it_goes_when_it_has_no_work(rig: Rig) -> None:
    rig.idle_s = 1
    rig.start()
    assert rig.left()["cause"] == "idle"


def test_it_goes_when_it_is_told_to(rig: Rig) -> None:
    rig.start()
    wait_until(rig.folder.beat.exists)
    rig.folder.begin_drain()
    assert rig.left()["cause"] == "drained"


def test_it_goes_before_its_time_is_over(rig: Rig) -> None:
    rig.life_s = 61
    rig.start()
    assert rig.left()["cause"] == "life"


def test_it_goes_at_once_when_slurm_signals_it_and_its_attempt_is_left_to_evidence(rig: Rig) -> None:
    rig.srun(f'mkdir {rig.attempt}/claim; trap "exit 143" TERM; while :; do sleep 0.1; done')
    rig.start()
    rig.post()
    wait_until((rig.attempt / "claim").exists)
    rig.processes[-1].terminate()
    assert (rig.left()["cause"], rig.folder.is_done(ATTEMPT)) == ("term", False)


def test_a_mail_that_was_taken_back_is_never_started(rig: Rig) -> None:
    rig.folder.create()
    rig.post()
    assert rig.folder.take_back(ATTEMPT) and not rig.folder.take_back(ATTEMPT)
    rig.idle_s = 1
    rig.start()
    rig.left()
    assert (rig.folder.where(ATTEMPT), (rig.root / "srun-argv").exists()) == ("back", False)


def test_a_run_that_would_outlast_it_is_closed_and_not_begun(rig: Rig) -> None:
    rig.life_s = 300
    rig.start()
    rig.post(limit_s=600)
    told = rig.end_of_attempt()
    assert told["cause"] == "unstarted" and "ends before 600 s are over" in told["why"]
    assert (rig.attempt / "claim").is_dir() and not (rig.root / "srun-argv").exists()


@pytest.mark.parametrize("start_s", [60, 600])
def test_a_run_that_it_is_offered_fits(rig: Rig, start_s: int) -> None:
    """The longest one that the service may hand over to it, also where runs take long to start."""
    rig.start_s, rig.life_s = start_s, start_s + 300
    rig.start()
    wait_until(rig.folder.beat.exists)
    now = datetime.now(UTC)
    mine = Keeper(
        id=KeeperId(1),
        name=NAME,
        backend="here",
        gpu="H100",
        state=KeeperState.HOLDING,
        handle=None,
        opened_at=now,
        life_s=rig.life_s,
        idle_s=rig.idle_s,
        started_at=now,
        start_s=start_s,
    )
    longest_s = mine.room_s(now)
    assert longest_s > 60, "it would serve nothing"
    rig.post(limit_s=math.ceil(longest_s) + start_s)  # as the service hands it over
    assert rig.end_of_attempt() == {}


def test_a_step_that_slurm_refuses_is_closed_with_slurms_reason(rig: Rig) -> None:
    rig.srun('echo "srun: error: Unable to create step for job 7: Requested nodes are busy" >&2; exit 1')
    rig.start()
    rig.post()
    told = rig.end_of_attempt()
    assert told["cause"] == "unstarted" and "Requested nodes are busy" in told["why"]
    assert (rig.attempt / "claim").is_dir()


def test_it_waits_for_a_step_whose_srun_was_killed(rig: Rig) -> None:
    """The step lives on without it: nothing is concluded, and nothing else begins, before it is gone."""
    lives_on = f'mkdir {rig.attempt}/claim; sleep 2; echo "{{}}" >{rig.attempt}/exit.json'
    rig.srun(f"KB_STEP={ATTEMPT} setsid sh -c '{lives_on}' & sleep 0.5; kill -9 $$")
    rig.start()
    rig.post()
    wait_until(lambda: rig.folder.is_done(ATTEMPT))
    assert (rig.attempt / "exit.json").exists()


def test_what_a_step_leaves_behind_is_ended(rig: Rig) -> None:
    rig.srun(f'KB_STEP={ATTEMPT} setsid sleep 300 & echo $! >{rig.root}/left-pid; sh "$last"')
    rig.start()
    rig.post()
    wait_until(lambda: rig.folder.is_done(ATTEMPT))
    assert not is_alive(int((rig.root / "left-pid").read_text()))


@pytest.mark.parametrize(("pids", "used_mb", "why"), [("4711\n", 12, "a process is on the device: 4711")])
def test_a_device_that_somebody_uses_is_no_place_to_begin(rig: Rig, pids: str, used_mb: int, why: str) -> None:
    rig.gpu(pids, used_mb)
    rig.start()
    left = rig.left()
    assert (left["cause"], why in left["why"]) == ("unfit", True)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (("4711\n", 12), "a process is on the device: 4711"),
        (("", 900), "900 MiB of the device are in use where there were 12"),
    ],
)
def test_a_device_that_a_run_leaves_unclean_ends_the_keeper_after_that_run(
    rig: Rig, after: tuple[str, int], why: str
) -> None:
    pids, used_mb = after
    rig.srun(f'sh "$last"; printf "%s" "{pids}" >{rig.root}/gpu-pids; echo {used_mb} >{rig.root}/gpu-mb')
    rig.start()
    rig.post()
    left = rig.left()
    assert (left["cause"], why in left["why"]) == ("unfit", True)
    assert rig.folder.is_done(ATTEMPT) and rig.end_of_attempt() == {}


def test_a_device_that_somebody_took_meanwhile_gets_no_run(rig: Rig) -> None:
    rig.start()
    wait_until(rig.folder.beat.exists)
    rig.gpu("4711\n")
    rig.post()
    told = rig.end_of_attempt()
    assert told["cause"] == "unstarted" and "a process is on the device" in told["why"]
    assert rig.left()["cause"] == "unfit" and not (rig.root / "srun-argv").exists()


def test_a_gpu_that_nobody_can_look_at_is_no_place_to_begin(rig: Rig) -> None:
    (rig.root / "gpu-mb").write_text("[N/A]\n")
    rig.start()
    assert "can not be looked at" in rig.left()["why"]


def test_a_keeper_runs_once_whatever_slurm_does_with_its_job(rig: Rig) -> None:
    rig.idle_s = 1
    rig.start()
    rig.left()
    rig.start()
    assert rig.processes[-1].wait(timeout=60) == 0
    assert (rig.folder.dir / "restart-7").exists()


def test_a_mail_that_cannot_be_moved_is_no_work_and_the_keeper_still_goes(rig: Rig) -> None:
    """A share that is full or read-only: it must neither spin nor hold its GPU for that."""
    rig.idle_s = 2
    rig.folder.create()
    rig.post()
    (rig.folder.dir / "taken").rmdir()
    (rig.folder.dir / "taken").write_text("no folder")
    rig.start()
    assert rig.left()["cause"] == "idle"
    assert json.loads(rig.folder.beat.read_text())["beat"] < 30


def test_a_mail_whose_move_was_told_as_failed_is_served_all_the_same(rig: Rig) -> None:
    """A network file system repeats a rename whose answer was lost, and then says that there is no such file."""
    rig.program("mv", '#!/bin/sh\n/bin/mv "$@"; exit 1\n')
    rig.start()
    rig.post()
    assert rig.end_of_attempt() == {}


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_an_srun_that_is_over_at_once_is_closed_whatever_shell_the_node_has(rig: Rig, shell: str) -> None:
    """bash takes note of an ended child before it is waited for."""
    rig.shell = shell
    rig.program("slow", "#!/bin/sh\nexec sleep 0.3\n")
    rig.srun('echo "srun: error: gone at once" >&2; exit 1')
    rig.between = 'kill() { [ "$1" != -0 ] || [ -n "${waited-}" ] || { waited=1; slow; }; command kill "$@"; }'
    rig.start()
    rig.post()
    told = rig.end_of_attempt()
    assert told["cause"] == "unstarted" and "gone at once" in told["why"]


def test_nothing_is_read_ahead_while_a_run_is_measured(rig: Rig) -> None:
    (rig.root / "image.sif").write_text("an image that takes long to read")
    reads = f"*.sif) echo $$ >{rig.root}/reader; exec sleep 300;;"
    rig.program("cat", f'#!/bin/sh\ncase "$*" in {reads} *) exec /bin/cat "$@";; esac\n')
    rig.image = f"{rig.root}/image.sif"
    rig.start()
    wait_until(lambda: (rig.root / "reader").exists() and (rig.root / "reader").read_text().endswith("\n"))
    reader = int((rig.root / "reader").read_text())
    assert is_alive(reader)
    rig.post()
    assert rig.end_of_attempt() == {}
    assert not is_alive(reader)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_nothing_of_a_tree_is_read_ahead_either_whatever_shell_the_node_has(rig: Rig, shell: str) -> None:
    """There a second process reads; dash doesn't understand every way to signal both."""
    (rig.root / "tree" / "torch").mkdir(parents=True)
    (rig.root / "tree" / "torch" / "large.so").write_text("a library that takes long to read")
    reads = f"*.so) echo $$ >{rig.root}/reader; exec sleep 300;;"
    rig.program("cat", f'#!/bin/sh\ncase "$*" in {reads} *) exec /bin/cat "$@";; esac\n')
    rig.shell, rig.image = shell, f"{rig.root}/tree"
    rig.start()
    wait_until(lambda: (rig.root / "reader").exists() and (rig.root / "reader").read_text().endswith("\n"))
    reader = int((rig.root / "reader").read_text())
    assert is_alive(reader)
    rig.post()
    assert rig.end_of_attempt() == {}
    wait_until(lambda: not is_alive(reader))


def test_a_node_whose_clock_is_late_does_not_make_its_life_longer(rig: Rig) -> None:
    rig.life_s, rig.clock_late_s = 61, 3600
    rig.start()
    assert rig.left()["cause"] == "life"


def test_a_keeper_is_not_started_on_a_node_that_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE.format(root=tmp_path, vendor="nvidia", start_s=60))
    write = keeper_writer(
        sites.load(tmp_path / "site.toml"),
        templates=shared_folders.path("sbatch_templates"),
        eval_dir=shared_folders.eval_dir(),
    )
    keeper = Keeper(
        id=KeeperId(1),
        name=NAME,
        backend="here",
        gpu="H100",
        state=KeeperState.INTENT,
        handle=None,
        opened_at=datetime.now(UTC),
        life_s=3600.0,
        idle_s=300.0,
    )
    assert "--exclude" not in write(keeper, tmp_path)
    assert "#SBATCH --exclude=n1,n2\n" in write(replace(keeper, avoid_nodes=("n1", "n2")), tmp_path)
