"""submitit's executor, job and watcher with our hooks in them: it owns paths, job objects and cancellation; the script
is ours, the result is JSON, and nothing is ever pickled or unpickled.

One executor per attempt directory. Every hook has a contract test: they are private to submitit 1.5.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from submitit.core import core
from submitit.slurm import slurm

from kbslurm.backends.paths import write_atomically
from kbslurm.backends.slurm.reader import JobRow, Phase, phase_of
from kbslurm.domain.keepers import KEEPER_PREFIX

JOB_ID_FILE = "job_id"
STATUS_LINE = "kbslurm-sbatch-status="
# Slurm's tools can report errors and exit 0: both streams and the status are returned as one text, never printed.
CATCHING = ("sh", "-c", f'"$@" 2>&1; echo "{STATUS_LINE}$?"', "sh")


class SbatchSaid(Exception):
    """sbatch gave no job id: its status and all it wrote."""

    def __init__(self, status: int | None, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(text)


class KbWatcher(slurm.SlurmInfoWatcher):
    """A site's jobs as the scheduler last showed them: the one place where a job's state is asked.

    It calls nothing: our batched look feeds it, and each look replaces the one before. Whatever that look didn't show
    is UNKNOWN, which is no end.
    """

    def __init__(self) -> None:
        super().__init__(delay_s=0)
        self._rows: tuple[JobRow, ...] = ()

    def feed(self, rows: Sequence[JobRow]) -> None:
        """What one look showed. Of two rows for an ID, the first counts."""
        self._rows = tuple(rows)
        self._info_dict = {
            row.id: {"JobID": row.id, "State": row.state, "NodeList": row.node or ""} for row in reversed(self._rows)
        }

    def row(self, name: str, job_id: str | None = None) -> JobRow | None:
        """The row of the job with this name and, if it is known, this ID: Slurm reuses IDs for others' jobs."""
        return next((row for row in self._rows if row.name == name and job_id in (None, row.id)), None)

    def keeper(self, job_id: str) -> JobRow | None:
        """The row of the keeper that this job is; an ID that Slurm has reused for another job doesn't count."""
        return next((row for row in self._rows if row.id == job_id and row.name.startswith(KEEPER_PREFIX)), None)

    def named(self, name: str) -> list[JobRow]:
        """All rows of jobs with this name."""
        return [row for row in self._rows if row.name == name]

    def register_job(self, job_id: str) -> None:
        """submitit's registry grows forever; our look knows the open attempts from the database."""

    def _make_command(self) -> None:
        return None

    def update_if_long_enough(self, mode: str) -> None:
        """Nothing, however it is asked: how often the scheduler is called is decided elsewhere."""

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Only a terminal state is an end; an unusual or unknown one isn't."""
        return phase_of(self.get_state(job_id, mode)) is Phase.ENDED


class KbJob(slurm.SlurmJob):  # type: ignore[type-arg,unused-ignore]
    """An attempt's job: its folder, whose name is the job's, and its ID. It never loads a pickle.

    Each site has a subclass with its own watcher (`jobs_of`): an ID means nothing elsewhere.
    """

    watcher: KbWatcher = KbWatcher()

    @property
    def row(self) -> JobRow | None:
        """How the last look showed it; None if it didn't."""
        return self.watcher.row(self.paths.folder.name, self.job_id)

    @property
    def state(self) -> str:
        row = self.row
        return "UNKNOWN" if row is None else row.state

    def done(self, force_check: bool = False) -> bool:
        return phase_of(self.state) is Phase.ENDED

    def cancel(self, check: bool = True) -> NoReturn:
        raise NotImplementedError("jobs are cancelled by the backend, within the site's budget of calls")

    def _get_outcome_and_result(self) -> NoReturn:
        raise NotImplementedError("a report is collected by the backend, never by submitit")


def jobs_of(watcher: KbWatcher) -> type[KbJob]:
    """The class of the jobs that this watcher knows."""
    return type("KbJob", (KbJob,), {"watcher": watcher})


class KbExecutor(slurm.SlurmExecutor):
    """Submits one rendered script from one attempt's directory: by `sbatch`, or by `send`, which takes its text and
    returns what sbatch would have printed."""

    def __init__(
        self,
        folder: Path,
        *,
        script: str,
        sbatch: Sequence[str] = (),
        send: Callable[[str], str] | None = None,
        jobs: type[KbJob] = KbJob,
        crash_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.job_class = jobs
        self._script, self._sbatch, self._send, self._crash_point = script, tuple(sbatch), send, crash_point
        super().__init__(folder, max_num_timeout=0)
        self._throttling = 0.0

    @classmethod
    def affinity(cls) -> int:
        """srun needn't be in our PATH: the commands may be anywhere, or behind ssh."""
        return 2

    def submit_rendered(self) -> KbJob:
        """Run sbatch once. SbatchSaid if it gave no ID."""
        return cast("KbJob", self._submit_command("rendered"))

    def _submit_command(self, command: str) -> core.Job[Any]:
        if self._send is None:
            return super()._submit_command(command)
        id_ = self._get_job_id_from_submission_command(self._send(self._script))
        self._write_job_id(id_, command)
        return self.job_class(folder=self.folder, job_id=id_)

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return self._script

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return [*CATCHING, *(word.replace("@SCRIPT@", str(submission_file_path)) for word in self._sbatch)]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        """The job ID from --parsable: the last line that is one, with or without `;cluster`."""
        text = string.decode(errors="replace") if isinstance(string, bytes) else string
        status = re.search(rf"^{STATUS_LINE}(\d+)$", text, re.MULTILINE)
        ids = re.findall(r"^(\d+)(?:;[\w.-]+)?$", text, re.MULTILINE)
        if status is None or status[1] != "0" or not ids:
            raise SbatchSaid(
                int(status[1]) if status else None, re.sub(rf"^{STATUS_LINE}.*$", "", text, flags=re.MULTILINE).strip()
            )
        return str(ids[-1])

    def _write_job_id(self, job_id: str, uid: str) -> None:
        """The crash journal: dying right after sbatch leaves the ID on disk."""
        self._crash_point("sent")
        write_atomically(Path(self.folder) / JOB_ID_FILE, f"{job_id}\n".encode())

    @staticmethod
    def _set_job_permissions(folder: Path) -> None:
        """The attempt's directory is private and stays so."""

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        raise NotImplementedError("functions are never pickled into a job")

    def map_array(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError("submitit's arrays bypass every hook of a subclass")


def folder_is_ours(folder: Path) -> bool:
    """Whether only we could have written there."""
    looks = folder.lstat()
    return looks.st_uid == os.geteuid() and not looks.st_mode & 0o077
