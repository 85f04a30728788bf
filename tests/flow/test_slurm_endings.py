"""Whatever a scheduler shows, and in whichever order: within a bounded time each run has its verdict, or says what it
waits for. At the default pace, with a hurried clock."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st

from kbslurm.backends.paths import AttemptPaths
from kbslurm.daemon.lane import Lane
from kbslurm.daemon.wake import Wake
from kbslurm.domain.run import RunState
from kbslurm.flow.cancel import cancel
from kbslurm.observe.metrics import Metrics
from tests.contract.test_slurm_standins import UNHEARD_OF
from tests.databases import Server
from tests.flow.stage import Stage
from tests.flow.test_slurm_waits import AWAY, LIMIT, MUTE, Led

BOUND_S = 900
STEP_S = 5.0
NAME = 'name=$(basename "$(dirname "$2")"); '
TAKES = NAME + 'echo "$(($(cat "{jobs}" | wc -l) + 1))|$name" >>"{jobs}"; '
SBATCH = {
    "takes": TAKES + 'cat "{jobs}" | wc -l',
    "takes and complains": TAKES + "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1",
    "is away": AWAY,
    "hangs": "exit 124",
    "says nothing": "exit 1",
    "has a limit": LIMIT,
}
SHOWN = 'while IFS=\'|\' read -r id name; do echo "$id|$name|{state}|1|2|n1|{reason}"; done <"{jobs}"'
QUEUE = {
    "pending": SHOWN.replace("{state}", "PENDING").replace("{reason}", "Priority"),
    "pending for no reason": SHOWN.replace("{state}", "PENDING").replace("{reason}", "None"),
    "put back": SHOWN.replace("{state}", "PENDING").replace("{reason}", "BeginTime"),
    "running": SHOWN.replace("{state}", "RUNNING").replace("{reason}", "None"),
    "enchanted": SHOWN.replace("{state}", "ENCHANTED").replace("{reason}", "None"),
    "failed": SHOWN.replace("{state}", "FAILED").replace("{reason}", "NonZeroExitCode"),
    "cancelled": SHOWN.replace("{state}", "CANCELLED").replace("{reason}", "None"),
    "node lost": SHOWN.replace("{state}", "NODE_FAIL").replace("{reason}", "NodeDown"),
    "timed out": SHOWN.replace("{state}", "TIMEOUT").replace("{reason}", "TimeLimit"),
    "out of memory": SHOWN.replace("{state}", "OUT_OF_MEMORY").replace("{reason}", "OutOfMemory"),
    "forgotten": "",
    "cut off": "",
    "mute": MUTE,
    "garbled": "echo '<html>maintenance</html>'",
}
SHOWS = 'echo "JobId=$4 JobName=$(sed -n "s/^$4|//p" "{jobs}") UserId=kb(1) JobState=RUNNING NodeList=n1"'
# An example takes seconds, so a failing one is told as it was found.
WITHOUT_SHRINKING = (HypothesisPhase.explicit, HypothesisPhase.reuse, HypothesisPhase.generate)
OVER = {"failed", "cancelled", "node lost", "timed out", "out of memory", "forgotten"}


@dataclass(frozen=True)
class Phase:
    """For some seconds the scheduler behaves like this. `event`: what happens at its start."""

    sbatch: str
    queue: str
    seconds: int
    event: str


PHASES = st.lists(
    st.builds(
        Phase,
        sbatch=st.sampled_from(sorted(SBATCH)),
        queue=st.sampled_from(sorted(QUEUE)),
        seconds=st.sampled_from([5, 20, 90]),
        event=st.sampled_from(["", "", "claims", "script ends", "new leader", "new run", "cancel"]),
    ),
    min_size=1,
    max_size=5,
)


class Play(Led):
    """One site through its phases."""

    def show(self, phase: Phase) -> None:
        jobs = self.rig.folder / "jobs"
        jobs.touch()
        self.rig.says("sbatch", SBATCH[phase.sbatch].replace("{jobs}", str(jobs)))
        self.rig.says("squeue", QUEUE[phase.queue].replace("{jobs}", str(jobs)))
        known = {"forgotten": UNHEARD_OF, "mute": MUTE}
        self.rig.says("scontrol", known.get(phase.queue, SHOWS.replace("{jobs}", str(jobs))))
        getattr(self, phase.event.replace(" ", "_") or "nothing")()

    def nothing(self) -> None:
        """No event."""

    def claims(self) -> None:
        """Every job that Slurm took begins."""
        for line in (self.rig.folder / "jobs").read_text().splitlines():
            job, _, name = line.partition("|")
            paths = AttemptPaths(root=self.place.root or Path(), name=name)  # type: ignore[arg-type]
            if paths.dir.is_dir() and not paths.claim.exists():
                paths.claim.mkdir()
                paths.owner.write_text(json.dumps({"job": job, "node": "n1"}))

    def script_ends(self) -> None:
        """Every job that began ends without a report."""
        for owner in (self.place.root or Path()).glob("kb-*/claim/owner.json"):
            told = {"cause": "judge", "status": 1, "began": True, "why": "", **json.loads(owner.read_text())}
            (owner.parent.parent / "exit.json").write_text(json.dumps(told))

    def new_leader(self) -> None:
        """A process that remembers nothing."""
        self.lane.close(1)
        self.place = self.fresh()
        self.lane = Lane(
            store=self.stage.store, place=self.place, clock=self.clock, wake=Wake(), metrics=Metrics(),
            places=(self.place,),
        )  # fmt: skip

    def new_run(self) -> None:
        self.stage.submit()

    def cancel(self) -> None:
        newest = self.stage.runs()[-1]
        cancel(self.stage.store.submissions, newest["submission_id"], None, self.clock.now())

    def check(self, last: Phase) -> None:
        """Every run has a verdict (or was cancelled), or a sentence about what it waits for."""
        for row in self.stage.runs():
            (run,) = (one for one in self.stage.store.submissions.get(row["submission_id"]).runs if one.id == row["id"])
            facts = (row["state"], [(one.state, one.reason) for one in run.attempts], self.told(row["id"]))
            match RunState(row["state"]):
                case RunState.SCORED | RunState.FAILED:
                    assert row["verdict"] is not None, facts
                case RunState.CANCELLED:
                    assert row["verdict"] is None, facts
                case RunState.QUEUED:
                    assert self.told(row["id"]), facts
                case RunState.LAUNCHING:
                    assert run.waits_for, facts
                case RunState.RUNNING:
                    assert last.queue not in OVER, facts
            if row["cancel_at"] is not None and last.queue in OVER:
                assert row["ended_at"] is not None, facts


@settings(
    max_examples=8,
    deadline=None,
    phases=WITHOUT_SHRINKING,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(phases=PHASES, accounting=st.booleans())
@example(phases=[Phase(sbatch="takes", queue="pending for no reason", seconds=5, event="")], accounting=False)
def test_every_run_ends_or_says_what_it_waits_for(
    postgres_server: Server, template_database: str, phases: list[Phase], accounting: bool
) -> None:
    url = postgres_server.create(template_database)
    try:
        with tempfile.TemporaryDirectory(prefix="kb-endings-") as folder:
            play = Play(Stage.build(url), Path(folder), accounting=accounting)
            try:
                play.submit(1)
                for phase in phases:
                    play.show(phase)
                    play.take_turns(phase.seconds, step_s=STEP_S)
                play.take_turns(BOUND_S, step_s=STEP_S)
                play.check(phases[-1])
                verdicts = play.stage.rows("SELECT run_id, count(*) AS n FROM verdict GROUP BY 1")
                assert all(row["n"] == 1 for row in verdicts)
            finally:
                play.lane.close(1)
                play.stage.close()
    finally:
        postgres_server.drop(url)
