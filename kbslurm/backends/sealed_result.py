"""What a job sealed for us when it was over, at a place where nodes and service share a run key."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from kbslurm.backends.github import runner_program
from kbslurm.backends.supervisor_exit import blamed, end_without_report, exit_in
from kbslurm.domain.run import Ending, JobName
from kbslurm_eval.shared.wire import REPORT_CAP

SEALED_CAP = 2 * REPORT_CAP


@dataclass(frozen=True, kw_only=True)
class Result:
    """A job's result, opened."""

    ending: Ending
    exit_code: int | None
    reason: str
    node: str
    started_at: datetime | None
    ended_at: datetime | None
    report: bytes | None
    artifacts: Mapping[str, bytes]
    log: str

    @property
    def size(self) -> int:
        """Roughly how many bytes it uses."""
        return len(self.report or b"") + sum(map(len, self.artifacts.values())) + len(self.log)


def opened(sealed: bytes, key: bytes, name: JobName) -> Result:
    """A sealed result, opened. OrderFailed, or whatever else it can be made to raise, if it isn't valid."""
    came = json.loads(runner_program.opened(sealed, key, name, "result", runner_program.RESULT_CAP))
    if came["form"] != runner_program.FORM or came["name"] != name:
        raise ValueError("it belongs to another attempt or has another format")
    exit_ = _with_its_supervisors_word(came["exit"], str(came["node"]))
    report = None if came["report"] is None else base64.b64decode(came["report"])
    result = Result(
        ending=blamed(
            Ending(exit_.get("ending", Ending.NO_REPORT)),
            exit_.get("exit_code"),
            checking=exit_.get("checking") is True,
        ),
        exit_code=exit_.get("exit_code"),
        reason=str(exit_.get("reason") or ("" if exit_ else "the harness couldn't be started on its runner")),
        node=str(came["node"]),
        started_at=_stamp(exit_.get("started_at")),
        ended_at=_stamp(exit_.get("ended_at")),
        report=report if report is not None and len(report) <= SEALED_CAP else None,
        artifacts={str(one): base64.b64decode(data) for one, data in came["artifacts"].items()},
        log=str(came["log"]),
    )
    return replace(result, report=None) if result.ending is Ending.CANCELLED else result


def _with_its_supervisors_word(exit_: Mapping[str, Any], node: str) -> Mapping[str, Any]:
    """How it ended. Of containers their own supervisor knows more than the one around it, which sees no report."""
    told = exit_.get("supervisor")
    if exit_.get("ending") != Ending.NO_REPORT or not isinstance(told, Mapping):
        return exit_
    left = exit_in(told, None)
    proved = None if left is None else end_without_report(left, results="the disk")
    if left is None or proved is None:
        return exit_
    return {**exit_, "ending": proved[0], "reason": f"{proved[1]} on {node}", "exit_code": left.status}


def _stamp(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int | float) else None
