"""[ray.NAME.pool]: what is refused, what the file for Ray's launcher says, and that no value can break out of it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.backends.ray import pool as pools
from kbslurm.config import toml_file
from kbslurm.config.sections.ray import RayGpuSection, RaySection
from kbslurm.config.sections.ray_pool import RayPoolSection, check_pool
from kbslurm.errors import Invalid, Misconfigured

PLACE = RaySection(
    url="https://ray.example.edu",
    gpus={"H100": RayGpuSection(resources={"H100": 1.0}), "A100": RayGpuSection(num_gpus=0.5)},
)
GPUS = pools.asked(PLACE)
AWS = """
provider = "aws"
region = "eu-north-1"
zones = ["eu-north-1a", "eu-north-1b"]
key_file = "run-key"
setup = ["echo 'a: b' # c"]
[head]
machine = "m7i.large"
[workers.spot]
gpu = "H100"
machine = "p5.4xlarge"
max = 4
preemptible = true
[workers.steady]
gpu = "H100"
machine = "p5.48xlarge"
runs = 8
min = 1
max = 2
setup = ["true"]
node = { SubnetIds = ["s-1"], Monitoring = { Enabled = true } }
"""
FROM_THE_STORE = "gcloud secrets versions access latest --secret=kb"
GCP = f"""
provider = "gcp"
region = "europe-west4"
zones = ["europe-west4-a"]
project = "kernels"
key_command = "{FROM_THE_STORE}"
[head]
machine = "n2-standard-4"
image = "projects/debian-cloud/global/images/family/debian-12"
[workers.a100]
gpu = "A100"
machine = "a2-highgpu-1g"
max = 3
runs = 2
preemptible = true
cpus = 12
"""
AZURE = """
provider = "azure"
region = "northeurope"
project = "kernels"
key_file = "run-key"
[head]
machine = "Standard_D4s_v5"
image = "microsoft-dsvm:ubuntu-2204:2204-gen2:latest"
[workers.spot]
gpu = "A100"
machine = "Standard_NC24ads_A100_v4"
max = 3
preemptible = true
node = { availability_zone = "none" }
"""
OWN = """
provider = "local"
key_file = "run-key"
ssh_user = "kb"
redis = "10.0.0.5:6379"
[head]
machine = "10.0.0.1"
[workers.basement]
gpu = "H100"
hosts = ["10.0.0.11", "10.0.0.12"]
runs = 2
cpus = 16
"""
EVERY = {"aws": AWS, "gcp": GCP, "azure": AZURE, "local": OWN}


def pool_of(text: str) -> RayPoolSection:
    return check_pool(toml_file.parsed(text, Path("kbslurm.toml")).built(RayPoolSection))


def read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(pools.cluster_file("eu", PLACE, pool_of(text)))
    return found


def test_bounds_kinds_and_resources_stand_in_the_file() -> None:
    told = read(AWS)
    assert (told["cluster_name"], told["max_workers"], told["idle_timeout_minutes"]) == ("kbslurm-eu", 6, 5.0)
    assert told["provider"]["availability_zone"] == "eu-north-1a,eu-north-1b"
    kinds = told["available_node_types"]
    assert {name: (kind.get("min_workers", 0), kind["max_workers"]) for name, kind in kinds.items()} == {
        "head": (0, 0),
        "spot": (0, 4),
        "steady": (1, 2),
    }
    assert kinds["head"]["resources"] == {"CPU": 0, "GPU": 0}, "nothing runs beside the head"
    assert kinds["spot"]["resources"] == {"GPU": 1, "H100": 1}
    assert kinds["steady"]["resources"] == {"GPU": 8, "H100": 8}
    assert kinds["spot"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in kinds["steady"]["node_config"]
    assert kinds["steady"]["node_config"]["Monitoring"] == {"Enabled": True}


def test_a_bound_over_all_kinds_and_a_share_of_a_gpu_are_kept() -> None:
    assert read(AWS.replace("key_file", "max = 3\nkey_file", 1))["max_workers"] == 3
    kind = read(GCP)["available_node_types"]["a100"]
    assert kind["resources"] == {"CPU": 12, "GPU": 1}, "two halves of a GPU are one"
    assert kind["node_config"]["scheduling"] == [{"preemptible": True}]


def test_commands_of_one_kind_come_after_the_common_ones() -> None:
    """Ray takes a kind's own commands instead of the common ones."""
    told = read(AWS)
    own = told["available_node_types"]["steady"]["worker_setup_commands"]
    assert own == [*told["setup_commands"], *told["worker_setup_commands"], "true"]
    assert told["worker_setup_commands"][1:] == ["echo 'a: b' # c"]


def test_azure_gets_everything_of_a_machine_in_its_template() -> None:
    told = read(AZURE)["available_node_types"]["spot"]["node_config"]["azure_arm_parameters"]
    assert told["vmSize"] == "Standard_NC24ads_A100_v4" and told["priority"] == "Spot"
    assert told["imageOffer"] == "ubuntu-2204" and told["availability_zone"] == "none"


def test_own_machines_get_their_resources_from_ray_start() -> None:
    told = read(OWN)
    assert told["provider"]["worker_ips"] == ["10.0.0.11", "10.0.0.12"] and told["max_workers"] == 2
    assert "available_node_types" not in told, "Ray's launcher refuses kinds there"
    start = told["worker_start_ray_commands"][-1]
    assert """--num-cpus=16 --num-gpus=2 --resources='{"H100":2}' --labels=kbslurm.pool=basement""" in start
    assert "RAY_REDIS_ADDRESS=10.0.0.5:6379" in told["head_start_ray_commands"][-1]


def test_the_file_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run-key").write_text("7" * 64)
    monkeypatch.chdir(tmp_path)
    text = pools.cluster_file("eu", PLACE, pool_of(AWS))
    assert "7" * 64 not in text
    told = yaml.safe_load(text)
    assert told["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token", "~/.kbslurm/run-key": "run-key"}
    assert "chmod 0400 ~/.ray/auth_token ~/.kbslurm/run-key" in told["setup_commands"]


def test_rays_environment_is_made_once_and_comes_first_on_the_path(tmp_path: Path) -> None:
    make, put_first, *_ = read(AWS)["setup_commands"]
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for _ in range(2):
        subprocess.run(["bash", "-c", f"{make} && {put_first}"], env=env, check=True)
    found = subprocess.run(["bash", "-ic", "which pip"], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(tmp_path / ".kbslurm" / "venv" / "bin" / "pip")
    assert len((tmp_path / ".bashrc").read_text().splitlines()) == 1


def set_up(home: Path, text: str, key: Path) -> bool:
    """Whether a node with this home gets through the set-up as far as it is about the key, which is wanted here."""
    told = yaml.safe_load(pools.cluster_file("eu", replace(PLACE, key_file=str(key)), pool_of(text)))
    for command in told["worker_setup_commands"]:
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        if "run-key" in command and subprocess.run(["bash", "-c", command], env=env, check=False).returncode:
            return False
    return True


@pytest.mark.parametrize("before", [None, "old"], ids=["a fresh node", "a node with an older key"])
@pytest.mark.parametrize("text", [GCP, AWS], ids=["by a command", "copied by Ray"])
def test_the_key_comes_to_where_the_jobs_look_for_it_for_its_user_alone(
    tmp_path: Path, text: str, before: str | None
) -> None:
    key = tmp_path / "etc of the node" / "run-key"
    if before is not None:
        key.parent.mkdir()
        key.write_text(before)
        key.chmod(0o644)
    arrived = tmp_path / ".kbslurm" / "run-key"
    if text is AWS:
        arrived.parent.mkdir()
        arrived.write_text("new-key")
    assert set_up(tmp_path, text.replace(FROM_THE_STORE, "printf %s new-key"), key)
    assert key.read_text() == "new-key" and key.stat().st_mode & 0o777 == 0o400
    assert text is AWS or (arrived.stat().st_mode & 0o777 == 0o400 and arrived.parent.stat().st_mode & 0o777 == 0o700)


@pytest.mark.parametrize("command", ["false", "true"], ids=["fails", "prints nothing"])
def test_a_command_that_gives_no_key_keeps_the_node_out(tmp_path: Path, command: str) -> None:
    key = tmp_path / "run-key"
    key.write_text("old")
    assert not set_up(tmp_path, GCP.replace(FROM_THE_STORE, command), key)
    assert key.read_text() == "old"


@pytest.mark.parametrize("text", EVERY.values(), ids=EVERY)
def test_every_command_is_one_that_a_shell_can_read(text: str) -> None:
    told = read(text)
    commands = [one for key, value in told.items() if key.endswith("_commands") for one in value]
    for kind in told.get("available_node_types", {}).values():
        commands += kind.get("worker_setup_commands", [])
    assert len(commands) >= 6
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)


@pytest.mark.parametrize("text", EVERY.values(), ids=EVERY)
def test_the_file_says_what_it_is_and_changes_with_what_it_says(text: str) -> None:
    told = pools.cluster_file("eu", PLACE, pool_of(text))
    again = pools.cluster_file("eu", PLACE, pool_of(text + "\n# only a comment"))
    other = pools.cluster_file("eu", PLACE, pool_of(text.replace("\n[head]", "\nidle_minutes = 9\n[head]")))
    assert told == again
    assert len({pools.digest_in(told), pools.digest_in(other), ""}) == 3


words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=30).filter(lambda text: text.isprintable())
values = st.recursive(
    words | st.integers(-(10**9), 10**9) | st.booleans() | st.floats(-1e9, 1e9).map(lambda one: round(one, 3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@given(command=words, node=st.dictionaries(words, values, max_size=3))
def test_any_text_comes_out_of_the_file_as_it_went_in(command: str, node: dict[str, Any]) -> None:
    section = pool_of(AWS)
    workers = {"spot": replace(section.workers["spot"], node=node, setup=(command,))}
    told = yaml.safe_load(pools.cluster_file("eu", PLACE, replace(section, workers=workers, setup=(command,))))
    assert told["worker_setup_commands"][1:] == [command]
    assert {**told["available_node_types"]["spot"]["node_config"], **node} == told["available_node_types"]["spot"][
        "node_config"
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('key_file = "run-key"', ""), "where its nodes get the run key"),
        (('key_file = "run-key"', 'key_file = "a"\nkey_command = "b"'), "where its nodes get the run key"),
        (('region = "eu-north-1"', ""), "no region"),
        (('machine = "m7i.large"', ""), "no head"),
        (('machine = "p5.4xlarge"', ""), "spot has no machine type"),
        (("max = 4", ""), "spot doesn't say how many"),
        (("max = 4", "min = 5\nmax = 4"), "min = 5 and max = 4"),
        (("[workers.spot]", "[workers.head]"), "can't be called head"),
        (("[workers.spot]", '[workers."a b"]'), "isn't a valid name"),
        (('provider = "aws"', 'provider = "azure"\nproject = "kernels"'), "has no image"),
        (('provider = "aws"', 'provider = "gcp"'), "a project and one zone"),
        (('provider = "aws"', 'provider = "local"'), "workers of one kind"),
        (('setup = ["true"]', 'setup = ["a\\nb"]'), "line break"),
        (("preemptible = true", 'hosts = ["10.0.0.1"]'), "lists hosts"),
        (('setup = ["true"]', "node = 4"), "must be a table"),
    ],
)  # fmt: skip
def test_what_would_fail_at_the_provider_is_refused_before(change: tuple[str, str], says: str) -> None:
    with pytest.raises((Invalid, Misconfigured), match=says) as caught:
        pool_of(AWS.replace("node = {", "# node = {").replace(*change))
    assert getattr(caught.value, "hint", None) or getattr(caught.value, "fix", None), "and says what to do"


def test_bounds_for_own_machines_are_refused_since_nothing_would_keep_them() -> None:
    with pytest.raises(Invalid, match="min means nothing for your own machines"):
        pool_of(OWN.replace("runs = 2", "min = 1"))


def test_workers_with_a_type_that_the_place_lacks_are_refused() -> None:
    with pytest.raises(Misconfigured, match=r"workers spot offer H100, which isn't among .*\(A100\)"):
        pools.cluster_file("eu", replace(PLACE, gpus={"A100": RayGpuSection()}), pool_of(AWS))
