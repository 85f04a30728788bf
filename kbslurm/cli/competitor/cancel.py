"""`kbslurm cancel`: the owner or staff cancels a submission."""

from __future__ import annotations

from kbslurm.cli.arguments import As, Json, SubmissionNumber
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing


def cancel(
    submission: SubmissionNumber,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Cancel a submission. Queued runs are cancelled now; running jobs are killed; verdicts stay."""
    with service(as_) as found:
        reached = found.cancel(submission)
    if as_json:
        printing.as_json({"submission": submission, "still_to_end": reached})
    elif reached:
        printing.say(
            f"submission #{submission} is cancelled; {reached} running job{'s' if reached > 1 else ''} will be killed"
        )
    else:
        printing.say(f"submission #{submission} is cancelled")
    return 0
