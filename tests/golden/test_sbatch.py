"""The job script of every shipped site and GPU type, byte for byte. KBSLURM_TEST_GOLDEN=write renews them."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from kbslurm.config import shared_folders, sites
from kbslurm.domain.run import JobName, KeeperName
from kbslurm.domain.site import Site
from kbslurm.flow.script import keeper_script_for, script_for
from tests.services import DASH, SHELLCHECK, needs

KEPT = Path(__file__).with_name("data") / "sbatch"
CASES = [
    (file.stem, gpu)
    for file in sorted(shared_folders.path("site-configs").glob("*.toml"))
    for gpu in sorted(sites.load(file).gpus)
]


KEEPERS = [("bunya", "H100"), ("della", "A100-80"), ("example", "H100")]


def rendered(name: str, gpu: str) -> str:
    return text_for(sites.load(shared_folders.path("site-configs") / f"{name}.toml"), gpu)


def text_for(site: Site, gpu: str) -> str:
    return script_for(
        site,
        name=JobName("kb-abcdefghijklmnopqrstuvwxyz"),
        gpu=gpu,
        directory=Path("/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz"),
        harness=Path("/shared/eval-0123456789abcdef"),
        supervisor="0123456789abcdef" * 4,
        time_limit_s=915.0,
        memory_bytes=4 << 30,
        avoid_nodes=("n7", "n8"),
        templates=shared_folders.path("sbatch_templates"),
    )


def keeper_text_for(site: Site, gpu: str) -> str:
    """The script of a keeper there, with what its file would have to say."""
    kind = dataclasses.replace(site.gpus[gpu], memory_mb=65_536, account="contest")
    return keeper_script_for(
        dataclasses.replace(site, gpus={gpu: kind}),
        name=KeeperName("kbk-abcdefghijklmnopqrstuvwxyz"),
        gpu=gpu,
        directory=Path("/shared/keepers/kbk-abcdefghijklmnopqrstuvwxyz"),
        harness=Path("/shared/eval-0123456789abcdef"),
        program="0123456789abcdef" * 4,
        idle_s=300.0,
        life_s=14_400.0,
        templates=shared_folders.path("sbatch_templates"),
    )


def keeper_rendered(name: str, gpu: str) -> str:
    return keeper_text_for(sites.load(shared_folders.path("site-configs") / f"{name}.toml"), gpu)


@pytest.mark.parametrize(("name", "gpu"), CASES)
def test_a_sites_script_is_as_it_was(name: str, gpu: str) -> None:
    text, file = rendered(name, gpu), KEPT / f"{name}-{gpu}.sh"
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), "it changed: look at it, then KBSLURM_TEST_GOLDEN=write"
    assert text == rendered(name, gpu)


@pytest.mark.parametrize(("name", "gpu"), KEEPERS)
def test_a_keepers_script_is_as_it_was(name: str, gpu: str) -> None:
    text, file = keeper_rendered(name, gpu), KEPT.parent / "keepers" / f"{name}-{gpu}.sh"
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), "it changed: look at it, then KBSLURM_TEST_GOLDEN=write"


FAMILY = [
    (file.stem, gpu)
    for file in sites.files_in(shared_folders.path("site-configs") / "family")
    for gpu in sorted(sites.load(file).gpus)
]


@pytest.mark.parametrize(("name", "gpu"), FAMILY)
def test_the_script_of_a_site_that_extends_another_is_as_it_was(name: str, gpu: str) -> None:
    text = text_for(sites.load(shared_folders.path("site-configs") / "family" / f"{name}.toml"), gpu)
    file = KEPT.parent / "family" / f"{name}-{gpu}.sh"
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), "it changed: look at it, then KBSLURM_TEST_GOLDEN=write"


def test_an_heirs_script_is_that_of_the_same_site_written_out(tmp_path: Path) -> None:
    """What a family saves is typing: a file without `extends` that says the same gets the same job."""
    assert {name for name, _ in FAMILY} == {"eu-north", "us-east", "us-east-lab"}
    lab = """
name = "us-east-lab"
max_time = "12h"
[paths]
shared_root = "/shared/kbslurm"
image_dir = "/shared/images"
node_scratch = "$TMPDIR"
[gpus.H100]
partition = "lab"
qos = "scavenger"
account = "contest"
request = "--gres=gpu:h100:1"
cpus = 8
memory = "64G"
image = "cuda.sif"
"""
    (tmp_path / "lab.toml").write_text(lab)
    alone = text_for(sites.load(tmp_path / "lab.toml"), "H100")
    assert alone == (KEPT.parent / "family" / "us-east-lab-H100.sh").read_text()


def test_every_site_can_have_keepers_that_claim_first_and_hold_no_secret() -> None:
    for name, gpu in CASES:
        text = keeper_rendered(name, gpu)
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
        assert len(text.splitlines()) <= 60 and text.endswith("\nkeep\n")
        steps = ['mkdir "$DIR/claim"', 'cat "$EVAL/keep.sh"', 'eval "$SUPERVISOR"', "\nkeep\n"]
        places = [text.index(step) for step in steps]
        assert places == sorted(places)
        code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        assert not re.search(r"TOKEN|PASSWORD|DATABASE_URL|SECRET", code)
        # it asks for what a run's own job asks for: same place, account, QOS and GPU
        request = [line for line in rendered(name, gpu).splitlines() if line.startswith("#SBATCH")]
        named = ("--job-name", "--mem", "--chdir", "--output", "--exclude", "--account")
        assert {line for line in request if not any(one in line for one in named)} <= set(text.splitlines())


def test_no_golden_script_is_left_over() -> None:
    assert {file.stem for file in KEPT.glob("*.sh")} == {f"{name}-{gpu}" for name, gpu in CASES}
    assert {file.stem for file in (KEPT.parent / "family").glob("*.sh")} == {f"{name}-{gpu}" for name, gpu in FAMILY}


@pytest.mark.parametrize("shell", [pytest.param("dash", marks=needs(DASH)), "bash", "sh"])
def test_every_script_is_posix_shell(shell: str) -> None:
    for name, gpu in CASES:
        posix = ["--posix"] if shell == "bash" else []
        subprocess.run([shell, *posix, "-n"], input=rendered(name, gpu), text=True, check=True)


@needs(SHELLCHECK)
def test_shellcheck_has_nothing_to_say() -> None:
    # what a script sets, the supervisor uses; the files that modules bring are the node's
    excluded = "--exclude=SC1090,SC1091,SC2015,SC2034"
    for name, gpu in dict(CASES).items():  # one GPU type of each site
        argv = ["shellcheck", "--shell=sh", excluded, "-"]
        done = subprocess.run(argv, input=rendered(name, gpu), text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout


def test_an_admin_has_a_page_to_read(tmp_path: Path) -> None:
    long = {f"{name}-{gpu}": len(rendered(name, gpu).splitlines()) for name, gpu in CASES}
    # and a site that makes use of every key
    text = (shared_folders.path("site-configs") / "example.toml").read_text()
    text, set_now = re.subn(
        r'^(account|qos|constraint|reservation|proxy|licenses|wckey) = ""', r'\1 = "x"', text, flags=re.MULTILINE
    )
    (tmp_path / "full.toml").write_text(text.replace("exclusive = false", "exclusive = true"))
    long["full"] = len(text_for(sites.load(tmp_path / "full.toml"), "H100").splitlines())
    assert (set_now, max(long.values()) <= 60) == (7, True), long


def test_the_claim_comes_first_then_the_supervisor_then_what_is_the_sites() -> None:
    for name, gpu in CASES:
        text = rendered(name, gpu)
        steps = ['mkdir "$DIR/claim"', 'cat "$EVAL/supervise.sh"', 'eval "$SUPERVISOR"', "\nset_up\n", "\nsupervise\n"]
        places = [text.index(step) for step in steps]
        assert places == sorted(places)
        assert text.endswith("\nsupervise\n")
        before = re.sub(r"\$\(uname -n\)", "", text[: places[0]])
        assert not re.search(r"\bmodule\b|\$\(|`|^\. ", before, re.MULTILINE), "nothing that can fail, and no process"
        for of_the_site in ("module load", "/dev/nvidiactl"):
            assert of_the_site not in text or text.index(of_the_site) > text.index('eval "$SUPERVISOR"')


def test_a_script_holds_no_bashism_and_no_secret() -> None:
    for name, gpu in CASES:
        text = rendered(name, gpu)
        code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        assert not re.search(r"\[\[|^\s*(local|function|source)\s|<<<|\$'|&>", code, re.MULTILINE)
        assert not re.search(r"TOKEN|PASSWORD|DATABASE_URL|SECRET", code)


def test_a_whole_node_ranks_and_a_slice_says_that_it_is_one() -> None:
    assert "VENDOR=nvidia GPU_OPTION=--nv WHOLE=yes\n" in rendered("bunya", "H100")
    assert "VENDOR=nvidia GPU_OPTION=--nv WHOLE=''\n" in rendered("bunya", "A100-MIG")
    assert "VENDOR=amd GPU_OPTION=--rocm WHOLE=yes\n" in rendered("bunya", "MI300")
