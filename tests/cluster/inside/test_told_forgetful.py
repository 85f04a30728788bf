"""A site without accounting whose controller forgets jobs after two seconds, looked at as rarely as by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.inside.faces import faces
from tests.cluster.inside.test_forgetful import killed_without_a_word
from tests.cluster.inside.walk import GOOD, sleeping, submission, walk_at

pytestmark = [pytest.mark.faults, pytest.mark.cluster_options("--no-accounting", "--min-job-age", "2")]


def test_a_job_that_is_killed_with_all_that_could_tell_of_it(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/told/forgetful"), accounting=False) as walk, faces(walk) as told:
        walk.stage.submit(sleeping(10), gpus=["H100"])
        walk.stage.submit(submission(GOOD), by="bob", gpus=["H100"])
        with walk.daemon():
            first = walk.wait_began()
            killed_without_a_word(Path(walk.site.paths.shared_root) / "attempts" / first["name"])
            walk.wait_attempt("dead")
            seen = told.look()
            killed, other = walk.wait_ended(2)
            told.look()
    assert (killed["verdict"], killed["attempts"]) == ("passed", 2)
    assert (other["verdict"], other["attempts"]) == ("passed", 1), "forgotten after its end, known by its files"
    assert (walk.verdicts(), walk.claims()) == (2, 3)
    reason = "the cluster doesn't know its job any more, and it left no result"
    assert walk.gave_up() == reason
    assert all(reason in seen[name] for name in ("why", "page")), seen
