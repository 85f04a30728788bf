"""How much memory a run's job asks for and is held to: each of its runners may use what the problem allows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kbslurm import wiring
from kbslurm.config import sites
from kbslurm.domain.finals import staged
from kbslurm.domain.problem import Problem
from kbslurm.flow import render
from kbslurm.flow.place import Place
from kbslurm.flow.script import short_of_memory
from kbslurm_eval.shared.wire import Build, Limits
from tests.flow.puppet import Puppet
from tests.golden.test_manifest import PROBLEM, work

GIB = 1 << 30
TRUSTED = "def custom_kernel(data):\n    return data\n"
SITE = """\
name = "here"
[paths]
shared_root = "/s"
[gpus.A100]
request = "--gres=gpu:1"
image = "/s/a.sif"
per_node = 8
{more}
"""


def problem(**fields: Any) -> Problem:
    return dataclasses.replace(PROBLEM, limits=Limits(memory_bytes=4 * GIB), **fields)


def ranks(count: int) -> dict[str, Any]:
    return {"multi_gpu": True, "tests": ({"size": 8, "seed": 1, "world_size": count},)}


@pytest.mark.parametrize(
    ("given", "limit", "asked"),
    [
        (problem(), 4, 4 + 1 + 1),
        (problem(config={"baseline": TRUSTED}), 8, 8 + 1 + 1),
        (problem(build=Build(adapter={"name": "ref"})), 4 + 1, 4 + 1 + 1),
        (problem(**ranks(2)), 2 * (4 + 1), 2 * (4 + 1) + 1),
        (problem(config={"baseline": TRUSTED}, **ranks(2)), 2 * (8 + 1), 2 * (8 + 1) + 1),
        (staged(problem(config={"baseline": TRUSTED}), [TRUSTED] * 2), 4 * 4, 4 * 4 + 1 + 1),
    ],
    ids=["alone", "beside a baseline", "with a reference in C++", "in ranks", "both", "a final, which has counted all"],
)
def test_submission_and_baseline_have_room_beside_each_other(
    given: Problem, limit: int, asked: int, tmp_path: Path
) -> None:
    run = dataclasses.replace(work("leaderboard"), problem=given)
    assert render.job(run, Place(backend=Puppet())).memory_bytes == limit * GIB
    (tmp_path / "here.toml").write_text(SITE.format(more='multi = "--gres=gpu:{n}"'))
    place = wiring.slurm_place(sites.load(tmp_path / "here.toml"))
    assert place.needs_mb is not None and place.needs_mb(run) == asked * 1024
    script = render.job(run, place).script
    assert script is not None and f"#SBATCH --mem={asked * 1024}M " in script


def test_a_sites_memory_is_short_where_a_baseline_has_no_room(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text(SITE.format(more='memory = "6G"'))
    site = sites.load(tmp_path / "here.toml")
    assert short_of_memory(site, "A100", problem().memory_bytes) is None
    short = short_of_memory(site, "A100", problem(config={"baseline": TRUSTED}).memory_bytes)
    assert short is not None and "6144 MB of memory, and the problem needs 10240 MB" in short
