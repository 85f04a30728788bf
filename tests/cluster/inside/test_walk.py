"""The whole walk on real Slurm in real Apptainer: accepted, queued, rendered, launched, measured, collected, scored."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.inside.walk import Walk, submission, walk_at

GPUS = ("H100", "A100")
# What a submission tries; each must fail. It says what it got, and the test reads that in the run's public log.
BURGLAR = """
import glob, json, os, re, signal, socket, subprocess, time

def reached(name):
    try:
        os.listdir(name) if os.path.isdir(name) else open(name, "rb").read(1)
        return True
    except OSError:
        return False

def connects(where, family=socket.AF_INET):
    try:
        with socket.socket(family) as line:
            line.settimeout(3)
            line.connect(where)
        return True
    except OSError:
        return False

def runs(*argv):
    try:
        return subprocess.run(argv, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False

got = {}
for name in ("/shared", "/home/kb", "/home/kb/.ssh", "/home/kb/.ssh/id_ed25519", "/root/.ssh", "/kb/key",
             "/kb/manifest.json",
             "/kb/out", "/kb/ask", "/run/munge", "/run/munge/munge.socket.2", "/etc/slurm/slurm.conf",
             "/var/spool/slurmd", "/scratch", "/kb/src", "/kb/venv"):
    got["path " + name] = reached(name)
got["munge"] = connects("/run/munge/munge.socket.2", socket.AF_UNIX)
for port in (6817, 6819, 22, 17001):
    got["port %d" % port] = connects(("127.0.0.1", port)) or connects(("192.0.2.1", port))
for tool in ("squeue", "sbatch", "scontrol", "scancel", "sacct", "ssh", "munge", "apptainer"):
    got["tool " + tool] = runs(tool, "--version")
got["other processes"] = any(b"slurm" in open(p, "rb").read() or b"manifest" in open(p, "rb").read()
                             for p in glob.glob("/proc/[0-9]*/cmdline"))
got["other links"] = len(glob.glob("/dev/shm/*")) > 0
got["slurm variables"] = any(n.startswith(("SLURM", "KB_", "APPTAINER_CACHE")) for n in os.environ)
for name in ("/run/user/1000", "/run/dbus", "/var/run/docker.sock", "/run/systemd", "/etc/munge",
             "/etc/munge/munge.key", "/var/spool/slurmctld", "/var/log/slurm", "/home/other",
             "/proc/1/root/shared", "/proc/1/root/home/kb",
             "/proc/1/cwd/claim", "/proc/1/environ", "/proc/1/mem", "/link/..//2", "/opt/kb/images/digests.lock"):
    got["path " + name] = reached(name)
for name in ("@/tmp/.X11-unix/X0", "@slurm", "/run/munge/munge.socket.2", "/proc/1/root/run/munge/munge.socket.2"):
    got["socket " + name] = connects(name.replace("@", chr(0)), socket.AF_UNIX)
for name in ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "KRB5CCNAME", "SLURM_JWT", "APPTAINER_NAME_OF_HOST"):
    got["variable " + name] = name in os.environ
got["home is the account's"] = os.path.expanduser("~").startswith("/home/kb") and os.path.isdir(os.path.expanduser("~"))

def allowed(action):
    try:
        action()
        return True
    except (OSError, AttributeError):
        return False

got["a namespace of its own"] = allowed(lambda: os.unshare(os.CLONE_NEWUSER))
got["a socket of the network"] = allowed(lambda: socket.socket(socket.AF_INET).close())
got["wrote the kernel's settings"] = allowed(lambda: open("/proc/sys/kernel/core_pattern", "w").close())
got["wrote control groups"] = any(os.access(p, os.W_OK) for p in glob.glob("/sys/fs/cgroup/*"))
got["signals to others"] = any(allowed(lambda: os.kill(int(p), 0)) for p in os.listdir("/proc")
                               if p.isdigit() and open("/proc/%s/cmdline" % p, "rb").read().find(b"slurm") >= 0)
# Whatever way there may be: files that the test laid where nothing of a submission should come.
seek, until = re.compile("canary-[0-9a-f]{8}"), time.monotonic() + 20
tops = ["/"] + glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd") + glob.glob("/proc/[0-9]*/fd/*")
for top in tops:
    for folder, folders, files in os.walk(top):
        if folder in ("/proc", "/sys") or time.monotonic() > until:
            folders[:] = []
        for name in folders + files:
            if seek.search(name):
                got["found " + os.path.join(folder, name)] = True
got["had no time to look everywhere"] = time.monotonic() > until
for place in ("/", "/usr", "/eval", "/eval/kbslurm_eval", "/etc"):
    try:
        open(os.path.join(place, "written"), "w").close()
        got["wrote " + place] = True
    except OSError:
        got["wrote " + place] = False
print("LOOT " + json.dumps({name: True for name, value in got.items() if value}) + " END")
print("TRIED %d" % len(got), flush=True)

def custom_kernel(data):
    return data
"""


@pytest.fixture
def walk(database_url: str, request: pytest.FixtureRequest) -> Iterator[Walk]:
    folder = Path("/shared/walk") / request.node.name
    with walk_at(database_url, folder, gpus=GPUS, test_s=30.0) as found:
        yield found


def test_a_submission_is_ranked_on_both_gpu_types_and_the_site_is_left_in_peace(walk: Walk) -> None:
    walk.stage.submit(submission("accepted/by_row.py"), mode="leaderboard", gpus=GPUS)
    with walk.daemon() as backend:
        runs = walk.wait_ended(2)
        calls = dict(backend.calls())
        assert {run["gpu"] for run in runs} == set(GPUS)
        for run in runs:
            assert (run["state"], run["verdict"], run["ranked"]) == ("scored", "passed", True), run
            assert run["score_s"] > 0
        details = walk.stage.rows("SELECT detail FROM verdict")
        for row in details:
            # in a container, but this cluster has no cgroups to pin cores with: 2 is the truth, and it may rank
            assert row["detail"]["isolation"]["level"] == 2, row["detail"]["isolation"]
            assert "all that a runner may write: memory of 1024 MiB at most" in row["detail"]["isolation"]["notes"]
            assert [phase["name"] for phase in row["detail"]["phases"]] == ["test", "benchmark", "ranked", "hidden"]
        assert calls["sbatch"] == 2
        assert calls.get("sacct", 0) == 0  # nothing vanished: files told it all
        turns = backend.pace_report().calls
        walk.stage.submit(submission("wrong_answer/not_a_number.py"), by="eve", gpus=GPUS[:1])
        walk.wait_ended(3)
        assert backend.pace_report().calls > turns
        settled = dict(backend.calls())
        walk.stage.store.events.wait(3.0)  # many ticks with nothing open
        assert dict(backend.calls()) == settled, "an idle site was asked"
    assert walk.verdicts() == 3
    assert walk.claims() == 3


def test_every_kind_of_failure_is_told_apart(walk: Walk) -> None:
    wanted = {
        "wrong_answer/not_a_number.py": "wrong",
        "wrong_answer/too_coarse.py": "wrong",
        "crash/missing_module.py": "error",
        "cheat/writes_control_words.py": "violation",
    }
    receipts = {
        int(walk.stage.submit(submission(name), by=f"p{n}", gpus=[GPUS[n % 2]]).submission_id): verdict
        for n, (name, verdict) in enumerate(wanted.items())
    }
    with walk.daemon():
        runs = walk.wait_ended(4)
    assert {run["submission_id"]: run["verdict"] for run in runs} == receipts


@pytest.fixture
def canaries(walk: Walk) -> Iterator[None]:
    """Files of a name that a submission looks for, in every place of the service's and of its own account's."""
    root, name = Path(walk.site.paths.shared_root), f"canary-{secrets.token_hex(4)}"
    places = (
        "/shared",
        root,
        root / "attempts",
        "/home/kb",
        "/home/kb/.ssh",
        "/dev/shm",
        "/tmp",
        "/scratch",
        "/run/user",
    )
    laid = [Path(place) / name for place in places if os.access(place, os.W_OK)]
    (root / "attempts").mkdir(exist_ok=True, mode=0o700)
    for file in laid:
        file.touch()
    assert len(laid) >= 5
    yield
    for file in laid:
        file.unlink()


@pytest.mark.usefixtures("canaries")
def test_a_submission_reaches_nothing_of_the_cluster_or_of_others(walk: Walk) -> None:
    walk.stage.submit(BURGLAR, gpus=GPUS[:1])
    walk.stage.submit(BURGLAR, by="eve", gpus=GPUS[1:])
    with walk.daemon():
        walk.wait_ended(2)
    for row in walk.stage.rows("SELECT detail FROM verdict"):
        log = row["detail"]["log"]
        assert "TRIED" in log, row["detail"]
        loot = json.loads(log.partition("LOOT ")[2].partition(" END")[0])
        assert loot == {}, f"it got at: {', '.join(loot)}"
