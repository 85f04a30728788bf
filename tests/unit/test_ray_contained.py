"""What a Ray node's supervisors are told of a run in a container, and what their words are taken for."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends import sealed_result, supervisor_call
from kbslurm.backends.github import runner_program
from kbslurm.backends.ray import contained, node_program
from kbslurm.backends.ray.backend import RayImage
from kbslurm.backends.ray.kit import kit
from kbslurm.config import shared_folders
from kbslurm.domain.run import Ending, JobName

NAME, KEY = JobName("kb-abc"), b"k" * 32


def order(image: str = "/nowhere.sif", **told: Any) -> dict[str, Any]:
    kept = RayImage(**{"path": image, "programs": ("apptainer", "singularity"), "vendor": "amd", **told})
    return {
        "name": NAME,
        "time_limit_s": 10.2,
        "memory_bytes": 1 << 30,
        "min_isolation": 2,
        "arguments": ["--min-isolation", "2"],
        "container": kept.told(),
    }


def on_a_node(folder: Path, *programs: str) -> dict[str, str]:
    """The environment of a node with these programs, which Ray has in an environment of its own."""
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "LD_LIBRARY_PATH": "/conda/lib", "CUDA_VISIBLE_DEVICES": "3", "SECRET": "x"}


def test_the_first_program_that_a_node_has_runs_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contained, "SYSTEM_PATH", str(tmp_path / "system"))
    image = tmp_path / "cuda.sif"
    image.touch()

    def found(*programs: str, **told: Any) -> str | None:
        folder = tmp_path / "-".join(programs or ("none",))
        folder.mkdir(exist_ok=True)
        return contained.program_for(order(str(image), **told), on_a_node(folder, *programs), "n7", "eu")

    assert found("singularity") == "singularity" and found("apptainer", "singularity") == "apptainer"
    assert found(or_own_cage=True) is None
    assert contained.program_for({**order(), "container": None}, {}, "n7", "eu") is None
    with pytest.raises(
        contained.NoContainer, match=r"no apptainer or singularity on n7: .*runtime = \"auto\" in \[ray.eu"
    ):
        found()
    image.unlink()
    with pytest.raises(contained.NoContainer, match=r"no image .*cuda.sif on n7: put it there, or correct image"):
        found("apptainer", or_own_cage=True)


def made(tmp_path: Path, folder: Path) -> dict[str, Any]:
    told = order()
    env = on_a_node(tmp_path)
    harness = tmp_path / "eval"  # what is sent to a worker; this checkout's own path may have a comma
    harness.symlink_to(shared_folders.eval_dir())
    usual = runner_program.supervisors_order(env, folder, told, harness)
    return contained.order_in_container(usual, told, "apptainer", env=env, folder=folder, harness=harness, node="n7")


def test_the_supervisor_is_told_all_that_it_reads_and_nothing_of_rays_environment(tmp_path: Path) -> None:
    found = made(tmp_path, tmp_path / NAME)
    words = found["argv"][found["argv"].index("kbslurm") + 1 :]
    told = dict(word.split("=", 1) for word in words)
    head = (shared_folders.eval_dir() / "supervise.sh").read_text().partition("\n#\n# What the shell can do")[0]
    rows = [line[:34] for line in head.splitlines() if line.startswith("#   ")]
    listed = {word for row in rows for word in re.findall("[A-Z][A-Z_]+", row)}
    assert listed == set(told), "its head lists what it is told"
    assert told["MIN_ISOLATION"] == "2" and told["GPU_OPTION"] == "--rocm" and told["LIMIT_S"] == "71"
    assert told["SHM_ROOT"] == found["work"], "whoever ends the supervisor removes what it has in memory"
    assert found["environment"]["CUDA_VISIBLE_DEVICES"] == "3"
    assert not {"LD_LIBRARY_PATH", "SECRET"} & set(found["environment"])
    assert found["environment"]["PATH"].startswith("/usr/local/bin:") and found["exit"].endswith("ended.json")


def test_without_a_container_a_worker_shows_the_gpus_that_ray_gave_the_run(tmp_path: Path) -> None:
    env = {"PATH": "/bin", "ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1", "SECRET": "x"}
    told = runner_program.supervisors_order(env, tmp_path, order(), shared_folders.eval_dir())["environment"]
    assert (told["ROCR_VISIBLE_DEVICES"], told["HIP_VISIBLE_DEVICES"]) == ("1", "1") and "SECRET" not in told


def test_a_path_that_cant_be_bound_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(contained.NoContainer, match="can't be bound into a container: give Ray a TMPDIR"):
        made(tmp_path, tmp_path / "a,b" / NAME)


def test_values_reach_the_supervisor_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "supervise.sh").write_text(
        'set_up() { printf "%s|" "$IMAGE" "$CONTAINER" "$PINNED"; }\nsupervise() { :; }\n'
    )
    odd = {"IMAGE": "/a b/$(id)'\"=c.sif", "CONTAINER": "apptainer --net 'x y'"}
    argv = supervisor_call.command(tmp_path, tmp_path, odd)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"{odd['IMAGE']}|{odd['CONTAINER']}||"


def test_the_kit_brings_whatever_the_node_program_imports(tmp_path: Path) -> None:
    zipfile.ZipFile(io.BytesIO(kit(shared_folders.eval_dir()))).extractall(tmp_path)
    assert (tmp_path / "eval" / "supervise.sh").is_file()
    program = (
        "import sys; sys.path[:] = [sys.argv[1], *sys.path];"
        " from kbslurm.backends.ray import node_program; print(node_program.__file__)"
    )
    argv = ["/usr/bin/env", "python3", "-I", "-S", "-c", program, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(tmp_path / "kbslurm/backends/ray/node_program.py"), done.stderr


@pytest.mark.parametrize(
    ("cause", "status", "began", "why", "ending", "reason"),
    [
        ("expired", 124, True, "", Ending.TIMEOUT, "it hit the time limit on n7"),
        ("expired", 124, False, "", Ending.BOOT_FAILURE, "the container didn't start in time on n7"),
        ("image", 1, False, "no x.sif", Ending.IMAGE, "the container wouldn't start: no x.sif on n7"),
        ("setup", 1, False, "the disk is full", Ending.BOOT_FAILURE, "prepare the job: the disk is full on n7"),
        ("judge", 74, True, "", Ending.NO_REPORT, "the disk was full or read-only"),
        ("judge", 3, True, "", Ending.NO_REPORT, "the judge ended with status 3 and left no report on n7"),
        ("term", 143, True, "", Ending.NO_REPORT, "the harness ended"),
        ("nonsense", 1, True, "", Ending.NO_REPORT, "the harness ended"),
    ],
)
def test_the_supervisor_in_a_job_says_why_there_is_no_report(
    cause: str, status: int, began: bool, why: str, ending: Ending, reason: str
) -> None:
    exit_ = {"ending": "no_report", "reason": "the harness ended with exit code 73", "exit_code": 73}
    note = {"cause": cause, "status": status, "began": began, "why": why, "job": NAME, "node": "n7"}
    found = result({**exit_, "supervisor": note})
    assert found.ending is ending and reason in found.reason
    for known in ("reported", "cancelled", "memory"):
        assert result({**exit_, "ending": known, "supervisor": note}).ending == known, "the one around it knows better"
    odds: tuple[Any, ...] = (None, [], "x", {"cause": "image"}, {"cause": "image", "status": "1"})
    for odd in odds:
        assert result({**exit_, "supervisor": odd}).ending is Ending.NO_REPORT


def test_a_judge_that_its_check_brought_down_is_the_answers_fault() -> None:
    exit_ = {"ending": "no_report", "reason": "the harness ended with exit code 73", "exit_code": 73}
    for status, checking, ending in ((139, True, "check_died"), (139, False, "no_report"), (137, True, "no_report")):
        note = {"cause": "judge", "status": status, "began": True, "checking": checking, "job": NAME, "node": "n7"}
        assert result({**exit_, "checking": checking, "supervisor": note}).ending == ending
        bare = {"ending": "no_report", "exit_code": 128 - status, "checking": checking}
        assert result(bare).ending == ending


def result(exit_: dict[str, Any]) -> sealed_result.Result:
    came = {"form": 1, "name": NAME, "node": "n7", "exit": exit_, "report": None, "log": "", "artifacts": {}}
    return sealed_result.opened(runner_program.sealed(json.dumps(came).encode(), KEY, NAME, "result"), KEY, NAME)


def test_what_a_killed_attempt_left_in_memory_is_removed_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    above = tmp_path / f"kbslurm-node-{os.getuid()}"
    memory, kept, link = (tmp_path / name for name in ("work", "kept", "link"))
    for name, work in (("kb-dead", memory), ("kb-linked", link), ("kb-odd", None)):
        (above / f"of-{name}" / name).mkdir(parents=True)
        if work is not None:
            (above / f"of-{name}" / name / "order.json").write_text(json.dumps({"work": str(work)}))
    for folder in (memory, kept):
        (folder / "kb-1" / "link").mkdir(parents=True)
    (memory / "kb-1").chmod(0)
    link.symlink_to(kept)
    above.chmod(0o700)
    for folder in above.iterdir():
        os.utime(folder, (0, 0))
    with node_program._place() as mine:
        assert sorted(one.name for one in above.iterdir()) == [mine.name]
    assert not memory.exists() and (kept / "kb-1" / "link").is_dir()
