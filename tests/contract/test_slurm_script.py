"""The job script itself, run by sh with a stand-in for the container program: what it says, and what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbslurm import share, sites
from kbslurm.domain.run import JobName
from kbslurm.flow.script import script_for

NOBODY = 65534
SITE = """\
name = "standins"
[paths]
shared_root = "{root}"
shm = "{root}/shm"
{scratch}
[container]
program = "{root}/apptainer"
[gpus.T4]
request = "--gres=gpu:1"
vendor = "none"
image = "{root}/image"
{more}
"""
# Told by its binds whether it is the judge or a runner.
PROGRAM = """\
#!/bin/sh
for word in "$@"; do
    case $word in
        */ask:/kb/ask:rw) SHM=${word%/ask:/kb/ask:rw} ;;
        */link/1:/link:rw) LINK=${word%:/link:rw} ;;
    esac
done
cd / || exit 1
if [ -n "${LINK-}" ]; then
    . ROOT/runner
    exit 0
fi
cp "$SHM/ask/facts" ROOT/facts
: >ROOT/attempt/out/heartbeat.json
. ROOT/judge
"""


@dataclass
class Rig:
    """A folder of somebody without rights, with a stand-in's judge and runner as shell text."""

    root: Path

    def run(
        self, judge: str, runner: str = "", *, scratch: str = "", more: str = "", **environ: str
    ) -> dict[str, object]:
        """Run the script to its end; its exit.json."""
        file = self.root / "site.toml"
        file.write_text(SITE.format(root=self.root, scratch=scratch, more=more))
        directory = self.root / "attempt"
        text = script_for(
            sites.load(file),
            name=JobName("kb-abc"),
            gpu="T4",
            directory=directory,
            harness=self.root / "eval",
            time_limit_s=4321,
            memory_bytes=1 << 30,
            templates=share.path("sbatch_templates"),
        )
        for name, said in (("judge", judge), ("runner", runner), ("script", text)):
            (self.root / name).write_text(said)
        (self.root / "apptainer").write_text(PROGRAM.replace("ROOT", str(self.root)))
        (self.root / "apptainer").chmod(0o755)
        for folder in (self.root, *self.root.rglob("*")):
            if os.getuid() == 0:
                os.chown(folder, NOBODY, NOBODY)
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        subprocess.run(
            ["sh", str(self.root / "script")],
            cwd="/",
            env={"PATH": os.defpath, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", **environ},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            check=False,
            **who,  # type: ignore[call-overload]
        )
        found: dict[str, object] = json.loads((directory / "exit.json").read_text())
        return found

    def left(self) -> list[str]:
        """What it left of its shared memory and scratch."""
        return sorted(path.name for name in ("shm", "disk") for path in (self.root / name).iterdir())


@pytest.fixture
def rig() -> Iterator[Rig]:
    root = Path(tempfile.mkdtemp(prefix="kb-script-"))
    for name in ("attempt/out", "eval", "image", "shm", "disk"):
        (root / name).mkdir(parents=True)
    (root / "eval" / "__main__.py").touch()
    yield Rig(root)
    subprocess.run(["chmod", "-R", "u+rwX", str(root)], check=False)
    shutil.rmtree(root)


RUN_ONE = """
mkdir "$SHM/link/1"
echo run 1 >"$SHM/ask/ask"
until [ -e "$SHM/ask/run.1.status" ]; do sleep 0.05; done
"""


def test_a_runner_that_locks_its_link_leaves_nothing_on_the_node(rig: Rig) -> None:
    locking = 'mkdir -p "$LINK/deep/er" && : >"$LINK/deep/er/file" && chmod 000 "$LINK/deep/er" "$LINK/deep"\n'
    told = rig.run(RUN_ONE, locking)
    assert (told["cause"], told["status"], told["began"]) == ("judge", 0, True)
    assert rig.left() == []


def test_a_scratch_folder_that_somebody_else_prepared_is_not_taken(rig: Rig) -> None:
    """On a node's /tmp everybody can make a folder of a name that they can guess."""
    (rig.root / "disk" / "kb-7" / "judge").mkdir(parents=True)
    (rig.root / "disk" / "kb-7" / "judge" / "trap").touch()
    told = rig.run('echo "$*" >ROOT/words'.replace("ROOT", str(rig.root)), scratch=f'node_scratch = "{rig.root}/disk"')
    assert told["cause"] == "judge"
    assert f"{rig.root}/disk/kb-7/judge" not in (rig.root / "words").read_text().split()
    assert rig.left() == ["kb-7"], "and what isn't ours stays"


def test_a_runner_that_has_ended_is_not_killed_again_by_a_number_that_is_anothers_now(rig: Rig) -> None:
    decoy = f"""
setsid sleep 100 &
other=$!
echo "$other" >"$SHM/ask/run.1.pid"
echo stop 1 >"$SHM/ask/ask"
echo run 2 >"$SHM/ask/ask"
until [ -e "$SHM/ask/run.2.status" ]; do sleep 0.05; done
kill -0 "$other" && echo lives >{rig.root}/other
kill -KILL "$other"
"""
    assert rig.run(RUN_ONE + decoy)["status"] == 0
    assert (rig.root / "other").read_text() == "lives\n"


def test_only_a_job_in_a_cgroup_of_its_own_on_its_own_cores_claims_to_be_alone(rig: Rig) -> None:
    """`whole` in a site's file says what was asked for; the highest isolation needs that the node keeps it."""
    assert rig.run("exit 0", SLURM_CPUS_ON_NODE="100000")["status"] == 0
    facts = (rig.root / "facts").read_text()
    assert "container=apptainer" in facts
    assert "exclusive" not in facts


def test_a_signal_from_outside_is_never_taken_for_the_time_limit(rig: Rig) -> None:
    """scancel and preemption signal every process of a job; the watchdog's own sleep is often the first to go."""
    signal = """
until [ -n "${nap-}" ]; do
    for process in /proc/[0-9]*; do
        tr '\\0' ' ' <"$process/cmdline" 2>/dev/null | grep -qx 'sleep 4381 ' && nap=${process#/proc/}
    done
done
watchdog=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$nap/status")
kill -TERM "$nap"
while grep -q '^State:[^A-Z]*[A-Y]' "/proc/$watchdog/status" 2>/dev/null; do sleep 0.05; done
"""
    told = rig.run(signal)
    assert (told["cause"], told["status"]) == ("judge", 0)
