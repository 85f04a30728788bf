"""The files that profiles leave."""

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
    """Files of profiles, by submission, until they are too old."""

    def of_submission(self, submission: SubmissionId) -> list[ArtifactView]:
        """What the profiles of this submission left, as far as it is still kept."""
        return [
            ArtifactView(gpu=row["gpu"], name=row["name"], size=row["size"], at=row["at"])
            for row in self._all(_ARTIFACTS, {"submission": submission})
        ]

    def read(self, submission: SubmissionId, gpu: str, name: str) -> bytes:
        """One of them. Its bytes were made where the submission ran: never look into them, never show them."""
        found = self._one(_ARTIFACT, {"submission": submission, "gpu": gpu, "name": name})
        if found is None:
            raise NotFound("artifact", name, known=[a.name for a in self.of_submission(submission) if a.gpu == gpu])
        return bytes(found["data"])

    def forget(self, before: datetime) -> int:
        """Remove what is older; how many."""
        with self._pool.transaction() as connection:
            return connection.execute(b"DELETE FROM artifact WHERE at < %(before)s", {"before": before}).rowcount
