"""A trial of a kernel that is a text: for agents and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kbslurm.cli.competitor import agent_answers
from kbslurm.cli.competitor.agent_answers import TrialTold

if TYPE_CHECKING:
    from kbslurm_eval.shared.wire import Mode


def tried(problem: str, source: str, mode: Mode, file_name: str, tell: Callable[[str], object]) -> TrialTold:
    """Judge it on this machine by the problem in that folder, which may have been pulled, telling which phase it is
    in."""
    from kbslurm.config import shared_folders
    from kbslurm.domain.source import checked_source
    from kbslurm.problems import loading
    from kbslurm.trial import pulled_folder, run
    from kbslurm.trial.pulled_board import check_can_judge

    def heard(beat: Mapping[str, Any]) -> None:
        tell(str(beat.get("phase", "")))

    place, gpu = Path(problem).expanduser(), "cpu"
    checked = checked_source(file_name, source.encode())
    if pulled_folder.is_pulled(place):
        board, _ = pulled_folder.read(place)
        check_can_judge(board, checked)
        loaded, gpu = board.problem, board.gpu(None)
    else:
        loaded = loading.load(place)
    with TemporaryDirectory(prefix="kbslurm-try-") as work:
        found = run.run_trial(
            loaded,
            checked.file_name,
            checked.text,
            mode,
            gpu,
            work=Path(work),
            eval_dir=shared_folders.eval_dir(),
            on_heartbeat=heard,
        )
    return agent_answers.trial_told(run.as_try_json(found), gpu)
