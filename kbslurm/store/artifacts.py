"""The files of profiles."""

from __future__ import annotations

from datetime import datetime

from kbslurm.domain.run import SubmissionId
from kbslurm.errors import NotFound
from kbslurm.store.rows import Rows
from kbslurm.store.views import ArtifactView

_ARTIFACTS = """
SELECT r.gpu, f.name, octet_length(f.data) AS size, f.at FROM run r
JOIN attempt a ON a.run_id = r.id AND a.number = r.attempts JOIN artifact f ON f.attempt_id = a.id
WHERE r.submission_id = %(submission)s ORDER BY r.id, f.name
"""

_ARTIFACT = """
SELECT f.data FROM run r JOIN attempt a ON a.run_id = r.id AND a.number = r.attempts
JOIN artifact f ON f.attempt_id = a.id
WHERE r.submission_id = %(submission)s AND r.gpu = %(gpu)s AND f.name = %(name)s ORDER BY r.id DESC LIMIT 1
"""


class Artifacts(Rows):
    """Files of profiles, by submission, until they expire."""

    def of_submission(self, submission: SubmissionId) -> list[ArtifactView]:
        """The files of this submission's profiles that are still stored."""
        return [
            ArtifactView(gpu=row["gpu"], name=row["name"], size=row["size"], at=row["at"])
            for row in self._all(_ARTIFACTS, {"submission": submission})
        ]

    def read(self, submission: SubmissionId, gpu: str, name: str) -> bytes:
        """One of them. Its bytes were made where the submission ran: never inspect or display them."""
        found = self._one(_ARTIFACT, {"submission": submission, "gpu": gpu, "name": name})
        if found is None:
            raise NotFound("artifact", name, known=[a.name for a in self.of_submission(submission) if a.gpu == gpu])
        return bytes(found["data"])

    def forget(self, before: datetime) -> int:
        """Remove older ones; returns how many."""
        with self._pool.transaction() as connection:
            return connection.execute(b"DELETE FROM artifact WHERE at < %(before)s", {"before": before}).rowcount
