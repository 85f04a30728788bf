"""The file for Ray's launcher, read by Ray's own: its schema, its launcher's checks, and its autoscaler's reader."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest

from kbslurm.backends.ray import pool as pools
from kbslurm.config import settings
from tests.services import RAY, RAY_CLUSTER, needs
from tests.unit.test_ray_pool import EVERY, GPUS, PLACE, pool_of

READ_BY_RAY = """
import json, sys, yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
told = prepare_config(yaml.safe_load(open(sys.argv[1])))
validate_config(told)
seen = AutoscalingConfig(told, skip_content_hash=True)
kinds = seen.get_node_type_configs()
print(json.dumps({
    "kinds": {
        name: [one.min_worker_nodes, one.max_worker_nodes, one.resources, one.labels] for name, one in kinds.items()
    },
    "most": seen.get_max_num_worker_nodes(),
    "idle_s": seen.get_idle_timeout_s(),
    "setup": {name: seen.get_worker_setup_commands(name) for name in kinds if name != "head"},
}))
"""


@needs(RAY_CLUSTER)
@pytest.mark.parametrize("text", EVERY.values(), ids=EVERY)
def test_ray_reads_the_file_as_it_is_meant(text: str, tmp_path: Path) -> None:
    section = pool_of(text)
    file = tmp_path / "cluster.yaml"
    file.write_text(pools.cluster_file("eu", PLACE, section))
    argv = [str(RAY.with_name("python")), "-c", READ_BY_RAY, str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["most"] == pools.most_workers(section) and told["idle_s"] == section.idle_minutes * 60
    if section.provider == "local":  # one kind for all machines, and its bound counts the head
        assert [kind[:2] for kind in told["kinds"].values()] == [[2, 3]]
        return
    for name, workers in section.workers.items():
        least, most, resources, labels = told["kinds"][name]
        assert (least, most) == (workers.min, workers.max)
        assert resources == pools.offered(workers, GPUS[workers.gpu])
        assert labels == {pools.KIND_LABEL: name}
        assert told["setup"][name][-len(workers.setup) or None :] == [*workers.setup] or not workers.setup
        assert len(told["setup"][name]) >= 2, "Ray itself and its token come first, for every kind"
    assert told["kinds"]["head"][2:] == [{"CPU": 0, "GPU": 0}, {pools.FILE_LABEL: pools.digest_in(file.read_text())}]


HELP_OF_RAY = """
import json, sys, click
from ray.scripts.scripts import cli
print(json.dumps({name: cli.commands[name].get_help(click.Context(cli.commands[name])) for name in sys.argv[1:]}))
"""
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "ray.md").read_text()


def commands_of_the_guide() -> list[list[str]]:
    """Every command of Ray's in the guide's blocks for the shell, as words; those within another one's quotes too."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", GUIDE, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    quoted = [inner for line in lines if line.startswith("ray ") for inner in re.findall(r"'([^']*)'", line)]
    ours = re.compile(r"(?:^|\S )ray [a-z]")
    found = [line[line.find("ray ") :] for line in (*lines, *quoted) if ours.search(line) and "kbslurm ray" not in line]
    return [shlex.split(text)[1:] for text in found]


@needs(RAY_CLUSTER)
def test_every_command_of_rays_in_the_guide_is_one() -> None:
    """With its options, in Ray's own help."""
    commands = commands_of_the_guide()
    firsts = {words[0] for words in commands}
    assert {"up", "down", "attach", "exec", "monitor", "dashboard", "start", "status", "list"} <= firsts
    argv = [str(RAY.with_name("python")), "-c", HELP_OF_RAY, *firsts]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    helps = json.loads(done.stdout.splitlines()[-1])
    for words in commands:
        for word in words[1:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in helps[words[0]], f"ray {words[0]} has no {word}"


def test_every_pool_in_the_guide_is_one(tmp_path: Path) -> None:
    blocks = re.findall(r"^( *)```toml\n(.*?)^ *```$", GUIDE, re.MULTILINE | re.DOTALL)
    texts = [textwrap.dedent(body) for _, body in blocks]
    seen = []
    for text in texts:  # one that says no address adds to the first
        (tmp_path / "kbslurm.toml").write_text(text if "\nurl = " in text else texts[0] + text)
        for place, section in settings.load(env={}, cwd=tmp_path).ray.items():
            if section.pool is not None:
                assert pools.digest_in(pools.cluster_file(place, section, section.pool))
            seen.append((place, None if section.pool is None else len(section.pool.workers), section.image))
    image = "/opt/kbslurm/cuda-1.sif"
    assert seen == [("eu", 2, ""), ("eu", None, image), ("eu", 3, ""), ("basement", 1, "")]
