"""`kbslurm ray pool` as an operator types it: the file, its JSON, and what is refused, with file and line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOML = """\
[ray.eu]
url = "https://ray.example.edu"
service_url = "https://kb.example.edu"
[ray.eu.gpus.H100]
num_gpus = 1
resources = { H100 = 1 }
slots = 8
[ray.eu.pool]
provider = "aws"
region = "eu-north-1"
key_file = "run-key"
[ray.eu.pool.head]
machine = "m7i.large"
[ray.eu.pool.workers.spot]
gpu = "H100"
machine = "p5.4xlarge"
max = 6
preemptible = true

[ray.by-hand]
url = "https://ray2.example.edu"
service_url = "https://kb.example.edu"
[ray.by-hand.gpus.A100]
slots = 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kbslurm.toml").write_text(TOML)
    return tmp_path


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbslurm", "ray", "pool", *words]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_prints_the_file_or_writes_it_and_writes_it_again(folder: Path) -> None:
    printed = typed(folder, "eu")
    assert printed.returncode == 0, printed.stderr
    assert yaml.safe_load(printed.stdout)["available_node_types"]["spot"]["max_workers"] == 6
    for _ in range(2):
        written = typed(folder, "eu", "--out", "made/eu.yaml")
        assert written.returncode == 0 and "ray up made/eu.yaml" in written.stdout, written.stderr
        assert (folder / "made" / "eu.yaml").read_text() == printed.stdout
    told = json.loads(typed(folder, "eu", "--json").stdout)
    assert (told["place"], told["file"], told["max"], told["yaml"]) == ("eu", None, 6, printed.stdout)
    assert told["digest"] in printed.stdout


def test_what_somebody_wrote_by_hand_stays(folder: Path) -> None:
    (folder / "eu.yaml").write_text("cluster_name: mine\n")
    refused = typed(folder, "eu", "--out", "eu.yaml")
    assert refused.returncode == 2 and "isn't from this command" in refused.stderr
    assert (folder / "eu.yaml").read_text() == "cluster_name: mine\n"
    assert typed(folder, "eu", "--out", "eu.yaml", "--force").returncode == 0


@pytest.mark.parametrize(
    ("words", "change", "says"),
    [
        (("us",), ("", ""), "there is no Ray cluster 'us'"),
        (("by-hand",), ("", ""), "ray.by-hand has no pool"),
        (("eu",), ('gpu = "H100"', 'gpu = "B200"'), "workers spot offer B200, which isn't among"),
        (("eu",), ("max = 6", "min = 9\nmax = 6"), "kbslurm.toml:14"),
        (("eu",), ('provider = "aws"', 'provider = "asw"'), "isn't one of aws, gcp, azure, local"),
        (("eu", "--out", "/proc/eu.yaml"), ("", ""), "/proc/eu.yaml"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(folder: Path, words: tuple[str, ...], change: tuple[str, str], says: str) -> None:
    (folder / "kbslurm.toml").write_text(TOML.replace(*change) if change[0] else TOML)
    done = typed(folder, *words)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.stdout == "" and "hint:" in done.stderr
