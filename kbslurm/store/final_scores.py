"""What finals that were applied say about scores, for others' statements.

A final measures one run of each participant's, and binds them: nothing else of theirs that had been judged when it was
ordered counts instead, or whoever had submitted a kernel twice would keep the luckier ordinary measurement. Nor does it
where they take back what was measured; where staff remove that, the final binds nobody to it. What is judged later was
measured beside nobody, and competes as ever.
"""

from __future__ import annotations

from kbslurm.store.deadlines import in_time
from kbslurm.store.taken_back import taken_back

# Each run's in the latest final that was applied.
NEWEST_SCORES = """SELECT DISTINCT ON (x.run_id) x.run_id, x.score_s, x.low_s, x.high_s FROM final_score x
    ORDER BY x.run_id, x.final_id DESC"""

# The same, of finals that were applied by then.
FINAL_SCORES = """SELECT DISTINCT ON (x.run_id) x.run_id, x.score_s, x.low_s, x.high_s
    FROM final_score x JOIN final f ON f.id = x.final_id
    WHERE %(until)s::timestamptz IS NULL OR f.decided_at <= %(until)s ORDER BY x.run_id, x.final_id DESC"""

# For whom a submission `{s}` to the board `b` counts.
SIDE = "CASE WHEN b.teams THEN coalesce('team ' || {s}.team, {s}.person_id::text) ELSE {s}.person_id::text END"

# Whether the score of the run `fr` in a final of the board `b` binds whoever submitted it: also where that was judged
# again since.
BINDS = f"""(b.ranking <> 'last' AND fr.may_rank AND fv.ranked AND fp.banned_at IS NULL
        AND {in_time("ft")} AND (ft.removed_at IS NULL OR {taken_back("ft")}))"""

# Whom finals of a board bind: the latest of each side's, on each GPU type, with the submission that was measured.
_BINDING = """SELECT DISTINCT ON (f.gpu, f.problem_version_id, {side}) f.gpu, f.problem_version_id, {side} AS side,
        f.created_at AS ordered_at, ft.id AS submission_id, x.score_s, x.low_s, x.high_s
    FROM final f JOIN leaderboard b ON b.id = f.board_id
    JOIN final_score x ON x.final_id = f.id
    JOIN run fr ON fr.id = x.run_id JOIN verdict fv ON fv.run_id = fr.id
    JOIN submission ft ON ft.id = fr.submission_id JOIN person fp ON fp.id = ft.person_id
    WHERE f.board_id = {board} AND {binds}{until}
    ORDER BY f.gpu, f.problem_version_id, {side}, f.id DESC"""
_UNTIL = " AND (%(until)s::timestamptz IS NULL OR f.decided_at <= %(until)s)"


# When a run's submission had been judged: once all measurements for its score had ended. A rejudge is no way around a
# final, so of several scores the first counts.
_JUDGED = """(SELECT min(judged.at) FROM (
        SELECT max(m.ended_at) AS at FROM run m LEFT JOIN verdict mv ON mv.run_id = m.id
        WHERE m.submission_id = {run}.submission_id AND m.gpu = {run}.gpu
            AND m.problem_version_id = {run}.problem_version_id
        GROUP BY m.rejudging_id HAVING bool_or(mv.ranked)) judged)"""


def bound(*, side: str, run: str, board: str = "%(board)s", until: bool = True) -> str:
    """A join to the final that binds this side for this run, which had been judged then, as `bound`; none where none
    does. `until`: only of those that were applied by then."""
    told = {"side": SIDE.format(s="ft"), "binds": BINDS, "until": _UNTIL if until else ""}
    return f"""LEFT JOIN LATERAL ({_BINDING.format(board=board, **told)}) bound
    ON bound.gpu = {run}.gpu AND bound.problem_version_id = {run}.problem_version_id
        AND bound.side = {side} AND bound.ordered_at >= {_JUDGED.format(run=run)}"""


# What counts beside that final: the submission that was measured, or any where there is none.
UNBOUND = "(bound.submission_id IS NULL OR bound.submission_id = {submission})"


def limited(name: str, own: str, submission: str) -> str:
    """One of the numbers of a score, `own` by itself, in a list of all submissions: of those that a final binds none is
    better than what was measured in it."""
    better = f"bound.submission_id <> {submission} AND bound.score_s > {own.format(name='score_s')}"
    return f"CASE WHEN {better} THEN bound.{name} ELSE {own.format(name=name)} END"
