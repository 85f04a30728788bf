"""kill -9 of a daemon whose runs go to Modal: nothing is lost, no run has two verdicts, at worst one call is wasted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.backends.modal import deploy
from kbslurm.daemon.clock import WallClock
from kbslurm.domain.run import AttemptState
from kbslurm.observe.crash_points import MODAL_CRASH_POINTS
from tests.chaos.history import check
from tests.chaos.killing import Killer
from tests.chaos.zygote import GPU, INSTANT
from tests.databases import Server
from tests.fakes.modal import FakeModal
from tests.flow.stage import Stage

# After these an id is lost, or was perhaps never given: the attempt is waited out, and then sent again.
LOST = {"modal.placed": 0, "modal.spawned": 1}
DEATHS = (*MODAL_CRASH_POINTS, "launch.before_submit", "launch.after_submit", "launch.after_note", "collect.after_read")


@pytest.fixture(scope="module")
def arena(
    postgres_server: Server, template_database: str, tmp_path_factory: pytest.TempPathFactory, root: Path
) -> Iterator[tuple[Stage, Killer, FakeModal]]:
    url, at = postgres_server.create(template_database), tmp_path_factory.mktemp("modal")
    (at / "eval").mkdir()
    program = f"import runpy\nrunpy.run_path({str(INSTANT / '__main__.py')!r}, run_name='__main__')\n"
    (at / "eval" / "__main__.py").write_text(program)
    function = {"gpu": GPU, "timeout_s": 3600, "cpu": 1.0, "memory_mib": 1024, "slots": 4}
    facts = deploy.told(app="chaos", image="", python="3.12", packages=(), functions={GPU: function}, digest="instant")
    deploy.render(at / "app", facts, eval_dir=at / "eval", app_file=root / "containers" / "modal_app.py")
    stage = Stage.build(url, clock=WallClock())
    try:
        with FakeModal(at / "app") as fake:
            hand = Killer("tests.chaos.modal_zygote", url, str(at), fake.url, root=at, checkout=root)
            try:
                yield stage, hand, fake
            finally:
                hand.close()
    finally:
        stage.close()
        postgres_server.drop(url)


@pytest.mark.parametrize("place_of_death", DEATHS)
def test_a_daemon_killed_at_this_crash_point_loses_nothing_and_nobody_is_told_twice(
    arena: tuple[Stage, Killer, FakeModal], place_of_death: str
) -> None:
    stage, hand, fake = arena
    (hand.root / "later-s").write_text("0")
    before = len(fake.calls)
    for words in ("passed", "wrong"):
        stage.submit(f"# {words} {place_of_death}\n", mode="leaderboard")
    hand.start(place_of_death)
    assert hand.died_at_its_crash_point(), hand.log()[-3000:]
    hand.start()
    if place_of_death in LOST:
        # The other run goes its way; this one is neither sent again nor given up while it may still run.
        stage.wait_until(lambda: stage.open_runs() == 1)
        assert stage.attempt().state in (AttemptState.INTENT, AttemptState.AMBIGUOUS)
        assert len(fake.calls) - before == 1 + LOST[place_of_death]
        stage.wait_until(lambda: all(call.output for call in fake.calls.values()))
        assert hand.end(signal.SIGTERM) == 0, hand.log()[-3000:]
        (hand.root / "later-s").write_text("10000")
        hand.start()
    stage.wait_until(lambda: stage.open_runs() == 0)
    assert hand.end(signal.SIGTERM) == 0, hand.log()[-3000:]
    assert len(fake.calls) - before == 2 + LOST.get(place_of_death, 0)
    check(stage)
