"""The first lines of a Ray place: what a running cluster offers, and lines that pass our own check."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import get_args

import pytest

from kbslurm.backends.ray import pool as pools
from kbslurm.backends.ray.pool_check import Node
from kbslurm.backends.ray.starter import Offered, Wishes, offered_by, toml_of
from kbslurm.config import settings
from kbslurm.config.sections.ray_pool import Provider

H100 = Offered(name="H100", resources={"accelerator_type:H100": 0.001}, there=16)


def node(*, is_head: bool = False, **resources: float) -> Node:
    named = {name.replace("__", ":"): amount for name, amount in resources.items()}
    return Node(is_head=is_head, resources=named, labels={})


def test_types_are_found_by_accelerator_by_resource_or_as_plain_gpus() -> None:
    eight = node(CPU=64, GPU=8, accelerator_type__H100=1, memory=1e9, node__10=1.0)
    found = offered_by([node(is_head=True, GPU=8), eight, eight, node(CPU=2, B200=2), node(GPU=1, L4=1), node(GPU=3)])
    assert found == [
        Offered(name="B200", num_gpus=0, resources={"B200": 1}, there=2),
        Offered(name="GPU", there=3),
        H100,
        Offered(name="L4", resources={"L4": 1}, there=1),
    ]
    assert [one.slots for one in found] == [2, 3, 4, 1], "few, since others may need the cluster too"


def test_a_cluster_without_workers_offers_nothing() -> None:
    assert offered_by([node(is_head=True, CPU=4, GPU=1)]) == []


@pytest.mark.parametrize("provider", get_args(Provider))
def test_its_lines_pass_our_own_check_and_become_a_file_for_rays_launcher(provider: Provider, tmp_path: Path) -> None:
    wishes = Wishes(
        name="eu-north", url="https://ray.example.edu", service_url="https://kb.example.edu", gpus=[H100],
        provider=provider, preemptible=provider != "local",
    )  # fmt: skip
    text = toml_of(wishes)
    told = tomllib.loads(text)["ray"]["eu-north"]
    assert told["gpus"]["H100"] == {"num_gpus": 1, "resources": {"accelerator_type:H100": 0.001}, "slots": 4}
    (tmp_path / "kbslurm.toml").write_text(text)
    section = settings.load(env={}, cwd=tmp_path).ray["eu-north"]
    assert section.pool is not None and section.pool.provider == provider
    assert pools.digest_in(pools.cluster_file("eu-north", section, section.pool))
    assert all("# ?" in line for line in text.splitlines() if "example" not in line and "10.0.0" in line)


def test_a_running_cluster_needs_no_pool_and_odd_names_are_quoted() -> None:
    odd = Offered(name='A "100"', resources={"a b": 1}, there=1)
    told = tomllib.loads(toml_of(Wishes(name="x", url="http://127.0.0.1:8265", service_url="http://h", gpus=[odd])))
    assert "pool" not in told["ray"]["x"] and told["ray"]["x"]["gpus"]['A "100"']["resources"] == {"a b": 1}
