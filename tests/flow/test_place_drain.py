"""Hosts let a place drain in the middle of the work: nothing new goes there, nothing that is open is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.api.hosting.hosting import Hosting
from kbslurm.config import settings
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import LEASE, Daemon
from kbslurm.domain.placement import Overflow, Rules
from kbslurm.domain.why import sentences
from kbslurm.errors import BackendRefused, Invalid, NotFound
from kbslurm.flow.place import Place
from kbslurm.observe.logs import teller
from kbslurm.ports import JobSpec
from tests.chaos.history import check
from tests.command_line import CommandLine
from tests.flow.stage import Stage, overheard, running
from tests.flow.test_overflow import Worker

WHEN_DOWN = Rules(overflow=Overflow(when="when_down"))
PATIENCE_S = 60.0


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, gpus=("A100", "H100"), clock=WallClock())
    yield built
    built.close()


def home(backend: Worker, **more: object) -> Place:
    return Place(backend=backend, poll_s=0.2, grace_s=0.0, sweep_gap_s=0.2, **more)  # type: ignore[arg-type]


def away(backend: Worker) -> Place:
    return home(backend, role="overflow", classes={"A100": "A100"})


def waited(stage: Stage, is_so: object, why: str) -> None:
    assert callable(is_so)
    stage.wait_until(is_so, patience_s=PATIENCE_S)
    assert is_so(), why


def why_of(stage: Stage, run: int) -> str:
    told = stage.store.runs.why(run, datetime.now(UTC))
    return " | ".join(sentences(told))


def test_a_place_drained_in_the_middle_ends_what_it_has_and_gets_nothing_new(stage: Stage) -> None:
    """At the default pace: two runs are open there, three wait; then it drains, and then takes runs again."""
    worker = Worker(stage.store, "cluster", slots=2)
    worker.queues = True
    with running(Daemon(stage.store, [home(worker)])):
        for _ in range(5):
            stage.submit(gpus=["A100"])
        waited(stage, lambda: len(worker.submitted) == 2, "two slots")
        stage.store.places.drain("cluster", "", "a fan is exchanged", by="grace")
        waited(stage, lambda: drains_told(stage, "cluster"), "the leader publishes it at once")
        worker.queues = False
        worker.begin()
        waited(stage, lambda: [run["verdict"] for run in stage.runs()].count("passed") == 2, "what was open ends")
        assert len(worker.submitted) == 2
        assert [run["state"] for run in stage.runs()].count("queued") == 3
        last = stage.runs()[-1]["id"]
        assert "cluster: it takes no new runs: hosts let it drain (a fan is exchanged)" in why_of(stage, last)
        assert "grace" not in why_of(stage, last)
        assert stage.store.places.resume("cluster", by="grace") == [""]
        waited(stage, lambda: stage.open_runs() == 0, "the rest follows")
    assert [run["verdict"] for run in stage.runs()] == ["passed"] * 5
    assert len(worker.submitted) == 5
    acts = [(one.kind, one.subject, one.data["by"]) for one in stage.store.events.audit_log()]
    assert acts == [
        ("staff.place.resume", "place:cluster", "grace"),
        ("staff.place.drain", "place:cluster", "grace"),
    ]
    check(stage)


def drains_told(stage: Stage, place: str) -> bool:
    lease = next((one for one in stage.store.leases.all() if one.name == LEASE), None)
    return lease is not None and bool(lease.info["places"][place]["draining"])


def test_it_outlives_the_daemon_and_binds_the_next(stage: Stage) -> None:
    worker = Worker(stage.store, "cluster")
    stage.store.places.drain("cluster", "", "", by="grace")
    for holder in ("one", "two"):
        with running(Daemon(stage.store, [home(worker)], holder=holder)):
            stage.submit(gpus=["A100"])
            waited(stage, lambda: drains_told(stage, "cluster"), "the next daemon knows it")
            assert worker.submitted == []
    assert [run["state"] for run in stage.runs()] == ["queued"] * 2


def test_what_waits_for_a_draining_home_goes_where_the_rule_lets_it(stage: Stage) -> None:
    cluster, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")
    stage.store.places.drain("cluster", "", "a move", by="grace")
    with running(Daemon(stage.store, [home(cluster), away(modal)], rules=WHEN_DOWN)):
        stage.submit(gpus=["A100"])
        waited(stage, lambda: stage.open_runs() == 0, "it overflows")
    assert (len(cluster.submitted), len(modal.submitted)) == (0, 1)
    (attempt,) = stage.rows("SELECT backend, why_here AS why FROM attempt")
    assert attempt == {"backend": "modal", "why": "cluster is draining (a move)"}


def test_where_nothing_else_may_take_it_it_waits(stage: Stage) -> None:
    cluster, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")
    stage.store.places.drain("cluster", "", "", by="grace")
    with running(Daemon(stage.store, [home(cluster), away(modal)], rules=Rules())):
        stage.submit(gpus=["A100"])
        waited(stage, lambda: drains_told(stage, "cluster"), "it is told")
        assert stage.runs()[0]["state"] == "queued"
    assert (cluster.submitted, modal.submitted) == ([], [])


def test_one_gpu_type_drains_and_the_other_does_not(stage: Stage) -> None:
    worker = Worker(stage.store, "cluster")
    worker.slots = {"A100": 2, "H100": 2}
    stage.store.places.drain("cluster", "H100", "", by="grace")
    with running(Daemon(stage.store, [home(worker)])):
        stage.submit(gpus=["H100"])
        stage.submit(gpus=["A100"])
        waited(stage, lambda: [run["state"] for run in stage.runs()] == ["queued", "scored"], "one of two")
    assert [job.gpu for job in worker.submitted] == ["A100"]


def test_a_run_that_the_place_kept_refusing_is_given_back_when_it_drains(stage: Stage) -> None:
    """It was claimed for that place, and certainly never sent: it is new there, too."""
    worker = Worker(stage.store, "cluster")

    def refuse(_: JobSpec) -> None:
        raise BackendRefused("cluster", "the queue is full", permanent=False)

    worker.submit = refuse  # type: ignore[method-assign, assignment]
    with running(Daemon(stage.store, [home(worker)])):
        stage.submit(gpus=["A100"])
        waited(stage, lambda: bool(stage.store.attempts.open()), "it was claimed")
        waited(stage, lambda: "the queue is full" in why_of(stage, stage.run()["id"]), "and refused")
        stage.store.places.drain("cluster", "", "", by="grace")
        waited(stage, lambda: stage.run()["state"] == "queued", "it waits in the queue again")
    (attempt,) = stage.rows("SELECT ending, reason FROM attempt")
    assert attempt == {"ending": "withdrawn", "reason": "cluster is draining; it wasn't sent"}


class TestHosts:
    """The acts themselves, and the commands."""

    @pytest.fixture
    def kbslurm(self, database_url: str, tmp_path: Path) -> CommandLine:
        file = tmp_path / "kbslurm.toml"
        file.write_text(
            '[daemon]\nstate_dir = "state"\n[daemon.local]\nname = "here"\nslots = { A100 = 2, H100 = 1 }\n'
        )
        return CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})

    @pytest.fixture
    def hosting(self, stage: Stage, kbslurm: CommandLine) -> Hosting:
        config = settings.load(kbslurm.cwd / "kbslurm.toml", {"DATABASE_URL": stage.url}, cwd=kbslurm.cwd)
        return Hosting(store=stage.store, config=config, by="grace", person=None, creator=None, now=datetime.now(UTC))

    def test_they_name_places_in_any_case_and_are_told_of_others(self, hosting: Hosting) -> None:
        hosting.place_drain("HERE", "  a\n fan ", "h100")
        (drain,) = hosting.store.places.drains()
        assert (drain.place, drain.gpu, drain.why, drain.by) == ("here", "H100", "a fan", "grace")
        with pytest.raises(NotFound, match="nowhere"):
            hosting.place_drain("nowhere")
        with pytest.raises(NotFound, match="B200 at here"):
            hosting.place_drain("here", gpu="B200")
        with pytest.raises(Invalid, match="301 characters"):
            hosting.place_drain("here", "x" * 301)
        with pytest.raises(Invalid, match="A100 at here isn't draining"):
            hosting.place_resume("here", "A100")
        hosting.place_resume("here")
        with pytest.raises(Invalid, match="here isn't draining"):
            hosting.place_resume("here")

    def test_the_commands_show_it_everywhere(self, kbslurm: CommandLine, stage: Stage) -> None:
        done = kbslurm("place", "drain", "here", "--why", "maintenance")
        assert (done.code, done.out) == (0, "here takes no new runs; 0 slots are still in use\n")
        (row,) = kbslurm("place", "list", "--json").json()["places"]
        assert (row["kind"], row["state"], row["why"]) == ("local", "draining", "by ada: maintenance")
        assert [(one["gpu"], one["slots"], one["draining"]["why"]) for one in row["gpus"]] == [
            ("A100", 2, "maintenance"),
            ("H100", 1, "maintenance"),
        ]
        assert kbslurm("place", "list", "-o", "name").out == "here\n"
        listed = kbslurm("place", "list").out
        assert "draining, by ada: maintenance" in listed and "A100 0/2" in listed
        status = kbslurm("status")
        assert "here is draining, by ada for" in status.out and "maintenance" in status.out
        assert kbslurm("place", "resume", "here").out == "here takes runs again\n"
        again = kbslurm("place", "resume", "here")
        assert (again.code, again.out) == (2, "") and "here isn't draining" in again.err

    def test_the_log_of_a_place_has_what_went_wrong_and_no_secret(
        self, kbslurm: CommandLine, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GITHUB_TOKEN", "ghp_hush_hush")
        worker = Worker(stage.store, "here")
        worker.down = worker.unclear = True
        with overheard(), running(Daemon(stage.store, [home(worker)])):
            stage.submit(gpus=["A100"])
            waited(stage, lambda: bool(stage.rows("SELECT 1 FROM place_line")), "the first lines")
            teller("daemon")("trouble", level="warning", backend="here", why="ghp_hush_hush was rejected")
        told = kbslurm("place", "logs", "here", "--json").json()
        text = " ".join(one["text"] for one in told["lines"])
        assert 'trouble why="*** was rejected"' in text and "the controller doesn't answer" in text
        assert "hush" not in text
        assert "the controller doesn't answer" in kbslurm("place", "logs", "here").out
        assert kbslurm("place", "logs", "here", "--lines", "1", "--json").json()["lines"] == told["lines"][-1:]


def test_nothing_is_foreseen_or_kept_for_a_place_that_drains(stage: Stage) -> None:
    """No wait is left on the bell: the loop doesn't spin while it drains."""
    worker = Worker(stage.store, "cluster")
    stage.store.places.drain("cluster", "", "", by="grace")
    daemon = Daemon(stage.store, [home(worker)])
    with running(daemon):
        stage.submit(gpus=["A100"])
        waited(stage, lambda: drains_told(stage, "cluster"), "it is told")
        before = daemon.metrics.ticks._value.get()
        threading.Event().wait(2.0)
        assert daemon.metrics.ticks._value.get() - before < 20
