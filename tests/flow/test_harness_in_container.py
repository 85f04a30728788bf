"""What of a node's own a runner in a container can still write to: Apptainer without root's rights binds its /sys
with all that is mounted there, and the link's folder as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.flow import harness_ground as ground
from tests.services import USER_NAMESPACES, needs

# As in such a container: a user namespace in which this user is only itself, and a file system of its own below /sys.
CONTAINER = """
set -e
mount -t tmpfs kb /sys/kernel
echo 0 >/sys/kernel/abort
mount --bind "$1" "$1"
exec unshare --user --map-current-user "$2" -c "$3" "$1"
"""
RUNNER = f"""
import json, os, sys
sys.path.insert(0, {str(ground.EVAL)!r})
from kbslurm_eval.cage import in_container, seen_inside

folder = sys.argv[1]
before = seen_inside.node_left_open(folder)
in_container._leave_the_first_process(folder)


def writes(path):
    try:
        with open(path, "w") as file:
            file.write("1")
    except OSError as error:
        return error.strerror
    return "written"


paths = ["/sys/kernel/abort", folder + "/more", folder + "/rank0/more", folder + "/bell", folder + "/rank0/in"]
found = [writes(path) for path in paths]
print(json.dumps([before, seen_inside.node_left_open(folder), found]))
"""


@needs(USER_NAMESPACES)
def test_nothing_of_the_nodes_is_open_to_a_runner_in_a_container(tmp_path: Path) -> None:
    for name in ("bell", "in", "rank0/in"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", CONTAINER, "container", str(tmp_path)]
    done = subprocess.run([*argv, sys.executable, RUNNER], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after, found = json.loads(done.stdout)
    assert str(tmp_path) in before and "/sys/kernel" in before
    assert after == []
    assert found[:3] == ["Read-only file system"] * 3
    assert found[3:] == ["written"] * 2
