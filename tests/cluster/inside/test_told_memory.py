"""Jobs that the kernel ends for their memory use: whose fault it is, and what people read of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.inside.faces import faces
from tests.cluster.inside.test_faults import HUNGRY, LOW
from tests.cluster.inside.walk import GOOD, submission, walk_at

pytestmark = [pytest.mark.faults, pytest.mark.cluster_options("--cgroups")]

GREEDY = "import time\nheld = bytearray(5 << 30)\ntime.sleep(60)\n" + submission(GOOD)


def test_who_is_to_blame_for_memory(database_url: str) -> None:
    """One job was given less than its problem needs; the other's submission takes more than its problem allows."""
    with walk_at(
        database_url, Path("/shared/told/memory"), gpus=("H100", "TIGHT"), memory="6G", more=LOW, start="30s"
    ) as walk:
        walk.stage.submit(HUNGRY, gpus=["TIGHT"])
        walk.stage.submit(GREEDY, by="ada", gpus=["H100"])
        with faces(walk) as told, walk.daemon():
            tight, greedy = walk.wait_ended(2)
            first, second = told.look(1), told.look(2)
    assert (tight["verdict"], tight["attempts"]) == ("infrastructure", 1), tight
    assert "had given it 500 MB where its problem needs" in tight["verdict_reason"]
    assert (greedy["verdict"], greedy["attempts"]) == ("memory", 1), greedy
    endings = {row["gpu"]: row["ending"] for row in walk.attempts()}
    assert endings["TIGHT"] == "misconfigured", endings
    assert (walk.verdicts(), walk.claims()) == (2, 2)
    for run, seen in ((tight, first), (greedy, second)):
        for name in ("watch", "why", "page"):
            assert run["verdict_reason"] in " ".join(seen[name].split()), (name, seen)
