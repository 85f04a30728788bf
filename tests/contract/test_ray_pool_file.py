"""The file for Ray's launcher, read by Ray's own: its schema, its launcher's checks, and its autoscaler's reader."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kbslurm.backends.ray import pool as pools
from tests.services import RAY, RAY_CLUSTER, needs
from tests.unit.test_ray_pool import EVERY, GPUS, pool_of

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
    file.write_text(pools.cluster_file("eu", section, GPUS))
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
