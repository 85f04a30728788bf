"""kbslurm doctor and kbslurm site init on a real cluster: what is fine passes, what is broken is found and named."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbslurm.config import sites
from kbslurm.daemon.clock import WallClock
from kbslurm.domain.site import Poll
from kbslurm.images import pins
from kbslurm.problems import loading
from tests.cluster.inside.control import as_root
from tests.cluster.inside.site import site_text
from tests.cluster.inside.walk import EXAMPLE, Walk, example, submission
from tests.flow.stage import Stage

Findings = Mapping[tuple[str, str], Mapping[str, str]]
WAIT = ("--wait", "150")
FUSE = ("/usr/bin/squashfuse", "/usr/bin/squashfuse_ll")


def kbslurm(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["kbslurm", *words], capture_output=True, text=True, timeout=400, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def doctor(file: Path, *words: str) -> tuple[int, Findings]:
    """The findings by (GPU type or nothing, name)."""
    done = kbslurm("doctor", "--site", str(file), "--json", *words)
    told: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, {(one["where"].split(" ")[0], one["name"]): one for one in told["findings"]}


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, mode=0o755)
    file = folder / "site.toml"
    file.write_text(text)
    return file


def roomy(folder: Path, **options: str) -> str:
    """The test cluster as a site whose jobs have the memory that the example's limit asks for."""
    return site_text(folder, memory="6G", **options).replace('memory = "2G"', 'memory = "6G"')  # type: ignore[arg-type]


def grades(found: Findings, grade: str) -> set[tuple[str, str]]:
    return {name for name, one in found.items() if one["grade"] == grade}


def test_a_healthy_site_passes_on_its_nodes_too(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given two boards, of which one wants what this cluster can't give
    monkeypatch.setenv("DATABASE_URL", database_url)
    stage = Stage.build(database_url, gpus=("H100",), clock=WallClock(), board="plain")
    stage.store.boards.add("strict", example(), gpus=["A100"], min_isolation=3, now=stage.clock.now())
    stage.close()
    folder = Path("/shared/doctor/healthy")
    digests = {name: pins.digest_of(Path("/opt/kb/images") / name) for name in ("cpu", "cpu.sif")}
    text = roomy(folder, more=f'image_digest = "{digests["cpu"]}"\n') + f'image_digest = "{digests["cpu.sif"]}"\n'
    code, found = doctor(written(folder, text), "--live", *WAIT)
    assert grades(found, "FAIL") == set(), found
    assert code == 0
    # what this cluster lacks is said, and nothing else is: no cgroups, cores for all, and it may be slow just now
    assert {name for _, name in grades(found, "CAUTION")} <= {
        *("device isolation", "cores", "visibility", "container", "memory on the node", "isolation achieved")
    }
    for gpu in ("H100", "A100"):
        for name in ("request", "file latency", "clocks", "mkdir between nodes", "isolation", "python3", "rehearsal"):
            assert found[gpu, name]["grade"] == "PASS", found[gpu, name]
        assert "to start" in found[gpu, "container"]["text"] or "starts in" in found[gpu, "container"]["text"]
        achieved = found[gpu, "isolation achieved"]
        assert achieved["text"].startswith("level 2 (apptainer) was achieved"), found
        assert (achieved["grade"], "strict" in achieved["text"]) == (
            ("PASS", False) if gpu == "H100" else ("CAUTION", True)
        )
        assert found[gpu, "image as it ran"]["text"].endswith("as pinned")
        assert found[gpu, "a runner's scratch"]["text"] == "memory of 1024 MiB at most"
        assert found[gpu, "memory on the node"]["grade"] == "CAUTION", "this cluster has no cgroups"
    assert "OverMemoryKill" in found["", "memory limit"]["text"]
    for name in ("Slurm", "accounting", "sacct", "MinJobAge", "mkdir", "rename", "shared root", "controller's clock"):
        assert found["", name]["grade"] == "PASS", found["", name]
    assert found["A100", "squashfuse"]["grade"] == "PASS"
    assert ("H100", "squashfuse") not in found, "a directory isn't mounted"
    assert found["A100", "image on the node"]["text"].endswith("as pinned")
    assert {path.name for path in folder.iterdir()} == {"site.toml"}, "it leaves nothing behind"


def test_without_live_no_job_is_submitted_and_that_is_said() -> None:
    folder = Path("/shared/doctor/quiet")
    before = subprocess.run(["squeue", "-h", "-t", "all", "-o", "%A %j"], capture_output=True, text=True).stdout
    code, found = doctor(written(folder, site_text(folder)))
    after = subprocess.run(["squeue", "-h", "-t", "all", "-o", "%A %j"], capture_output=True, text=True).stdout
    assert code == 0
    assert grades(found, "not looked at") == {("H100", "node"), ("A100", "node")}
    assert {line for line in after.splitlines() if "kb-probe" in line} <= set(before.splitlines())


def test_a_missing_a_damaged_and_a_replaced_image_are_found_here_and_on_the_node() -> None:
    folder = Path("/shared/doctor/images")
    (folder / "pictures").mkdir(parents=True)
    good = Path("/opt/kb/images/cpu.sif").read_bytes()
    (folder / "pictures" / "cpu.sif").write_bytes(good[:200_000] + bytes(len(good) // 8))
    text = site_text(folder).replace('image_dir = "/opt/kb/images"', f'image_dir = "{folder}/pictures"')
    (folder / "site.toml").write_text(text)
    code, found = doctor(folder / "site.toml", "--live", *WAIT)
    assert code == 1
    assert found["H100", "image"]["grade"] == "FAIL"
    assert found["H100", "image on the node"]["grade"] == "FAIL"
    assert "doesn't exist" in found["H100", "image on the node"]["text"]
    assert found["A100", "container"]["grade"] == "FAIL", found
    assert all(one["remedy"] for one in found.values() if one["grade"] != "PASS")
    pinned = pins.digest_of(Path("/opt/kb/images/cpu.sif"))
    (folder / "site.toml").write_text(text + f'image_digest = "{pinned}"\n')
    assert doctor(folder / "site.toml")[1]["A100", "image"]["grade"] == "FAIL"


def test_a_login_node_that_ssh_cant_reach_is_told_as_that() -> None:
    folder = Path("/shared/doctor/far")
    far = '[submit]\nvia = "ssh"\nhost = "localhost"\nidentity = "/nonexistent"\noptions = ["IdentityAgent=none"]\n'
    known = 'known_hosts = "/home/kb/.ssh/known_hosts"\n[gpus.H100]'
    code, found = doctor(written(folder, site_text(folder).replace("[gpus.H100]", far + known)))
    told = found["", "ssh to localhost"]
    assert (code, told["grade"]) == (1, "FAIL")
    assert "Permission denied" in told["text"] or "nonexistent" in told["text"]
    assert told["remedy"].endswith("by hand: ssh -i /nonexistent -p 22 localhost true")


def test_a_node_without_squashfuse_is_warned_of() -> None:
    folder = Path("/shared/doctor/squashfuse")
    file = written(folder, site_text(folder))
    for path in FUSE:
        as_root("mv", path, f"{path}.away")
    try:
        code, found = doctor(file, "--live", *WAIT)
    finally:
        for path in FUSE:
            as_root("mv", f"{path}.away", path)
    assert code == 0, found
    assert found["A100", "squashfuse"]["grade"] == "CAUTION"
    assert "unpacked" in found["A100", "squashfuse"]["text"]
    assert ("H100", "squashfuse") not in found


def test_what_slurm_would_refuse_is_found_before_anything_runs() -> None:
    folder = Path("/shared/doctor/refused")
    text = site_text(folder).replace('request = "--gres=gpu:h100:1"', 'request = "--gres=gpu:h100:64"')
    text = text.replace('partition = "gpu-a100"', 'partition = "nowhere"')
    file = written(folder, text)
    code, found = doctor(file, "--live", *WAIT)
    assert code == 1
    assert found["H100", "request"]["grade"] == "FAIL"
    assert found["H100", "probe job"]["grade"] == "FAIL"
    assert found["A100", "partition"]["grade"] == "FAIL"
    assert "gpu-a100" in found["A100", "partition"]["remedy"]
    assert kbslurm("doctor", "--site", str(folder / "none.toml")).returncode == 2
    assert kbslurm("doctor", "--live").returncode == 2


def test_site_init_writes_a_file_with_which_a_submission_is_scored(database_url: str) -> None:
    folder = Path("/shared/doctor/init")
    words = (
        "site",
        "init",
        "--name",
        "first",
        "--out",
        str(folder / "sites" / "first.toml"),
        "--shared-root",
        str(folder / "root"),
    )
    done = kbslurm(*words, "--image-dir", "/opt/kb/images", "--image", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    site = sites.load(folder / "sites" / "first.toml")
    assert {name: (gpu.partition, gpu.whole, gpu.count) for name, gpu in site.gpus.items()} == {
        "H100": ("gpu-h100", True, 4),
        "A100": ("gpu-a100", True, 4),
        "1g.10gb": ("mig", False, 2),
    }
    assert kbslurm(*words).returncode == 2, "it replaces nothing unasked"
    told = json.loads(kbslurm(*words, "--image-dir", "/opt/kb/images", "--image", "cpu", "--force", "--json").stdout)
    written = (folder / "sites" / "first.toml").read_text()
    assert told == {"site": "first", "gpus": sorted(site.gpus), "file": words[5], "toml": written}
    assert kbslurm("site", "check", str(folder / "sites" / "first.toml")).returncode == 0

    code, found = doctor(folder / "sites" / "first.toml", "--live", *WAIT)
    # the GPUs here are fake: a file that says nvidia is told so, and nothing else is wrong
    assert {name for _, name in grades(found, "FAIL")} == {"GPU", "GPU in the container"}, found
    assert code == 1
    assert {gpu for gpu, name in found if name == "container"} == {"H100", "A100", "1g.10gb"}

    problem = loading.load(EXAMPLE)
    limits = dataclasses.replace(problem.limits, test_s=180.0, total_s=600.0)
    problem = dataclasses.replace(problem, limits=limits, config={})  # without its baseline: nothing else runs
    stage = Stage.build(database_url, problem=problem, gpus=("H100",), clock=WallClock())
    try:
        quick = dataclasses.replace(site, poll=Poll(min_interval_s=0.1, calls_per_minute=60_000))
        walk = Walk(stage=stage, site=quick, url=database_url)
        stage.submit(submission("accepted/by_row.py"), gpus=("H100",))
        with walk.daemon():
            (run,) = walk.wait_ended(1)
        assert (run["state"], run["verdict"]) == ("scored", "passed"), run
    finally:
        stage.close()
