"""Accept for a place: what is submitted may be ordered to one place, by the same call"""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

FOR_A_PLACE = """
CREATE FUNCTION kb_accept(the_seen text, the_category text, the_person bigint, the_board bigint, the_mode text,
    the_file_name text, the_source text, the_sha256 text, the_via text, staff boolean, the_version bigint,
    the_gpus text[], the_stamps timestamptz[], the_seeds text[], the_cost_s double precision, paired boolean,
    the_place text, at timestamptz, OUT made bigint, OUT due bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE now_so text;
BEGIN
    PERFORM kb_intake_lock(the_person);
    SELECT f.seen INTO now_so FROM kb_facts(the_person, the_board, the_category) f;
    IF now_so IS DISTINCT FROM the_seen THEN
        RETURN;
    END IF;
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    VALUES (the_person, the_board, the_mode, the_file_name, the_source, the_sha256, the_via, staff, kb_accept.at)
    RETURNING id INTO made;
    WITH queued AS (
        INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
            secret_seed, pinned, held)
        SELECT made, the_version, the_person, r.gpu, r.fair_at, kb_accept.at, the_cost_s, staff, r.seed,
            the_place, paired AND NOT EXISTS (SELECT 1 FROM calibration c
                WHERE c.board_id = the_board AND c.problem_version_id = the_version AND c.gpu = r.gpu)
        FROM unnest(the_gpus, the_stamps, the_seeds) AS r(gpu, fair_at, seed)
        RETURNING id, gpu
    ), noted AS (
        INSERT INTO event (kind, subject, data, at)
        SELECT 'submission.accepted', 'submission:' || made,
            jsonb_build_object('person', the_person, 'board', the_board, 'mode', the_mode, 'via', the_via), kb_accept.at
        UNION ALL
        SELECT 'run.queued', 'run:' || q.id, jsonb_build_object('submission', made, 'gpu', q.gpu), kb_accept.at
        FROM queued q
    )
    SELECT array_agg(q.id ORDER BY q.id) INTO due FROM queued q;
END $$
"""
BEFORE = """
CREATE FUNCTION kb_accept(the_seen text, the_category text, the_person bigint, the_board bigint, the_mode text,
    the_file_name text, the_source text, the_sha256 text, the_via text, staff boolean, the_version bigint,
    the_gpus text[], the_stamps timestamptz[], the_seeds text[], the_cost_s double precision, paired boolean,
    at timestamptz, OUT made bigint, OUT due bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE now_so text;
BEGIN
    PERFORM kb_intake_lock(the_person);
    SELECT f.seen INTO now_so FROM kb_facts(the_person, the_board, the_category) f;
    IF now_so IS DISTINCT FROM the_seen THEN
        RETURN;
    END IF;
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    VALUES (the_person, the_board, the_mode, the_file_name, the_source, the_sha256, the_via, staff, kb_accept.at)
    RETURNING id INTO made;
    WITH queued AS (
        INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
            secret_seed, held)
        SELECT made, the_version, the_person, r.gpu, r.fair_at, kb_accept.at, the_cost_s, staff, r.seed,
            paired AND NOT EXISTS (SELECT 1 FROM calibration c
                WHERE c.board_id = the_board AND c.problem_version_id = the_version AND c.gpu = r.gpu)
        FROM unnest(the_gpus, the_stamps, the_seeds) AS r(gpu, fair_at, seed)
        RETURNING id, gpu
    ), noted AS (
        INSERT INTO event (kind, subject, data, at)
        SELECT 'submission.accepted', 'submission:' || made,
            jsonb_build_object('person', the_person, 'board', the_board, 'mode', the_mode, 'via', the_via), kb_accept.at
        UNION ALL
        SELECT 'run.queued', 'run:' || q.id, jsonb_build_object('submission', made, 'gpu', q.gpu), kb_accept.at
        FROM queued q
    )
    SELECT array_agg(q.id ORDER BY q.id) INTO due FROM queued q;
END $$
"""


def upgrade() -> None:
    op.execute("DROP FUNCTION kb_accept")
    op.execute(FOR_A_PLACE.strip())


def downgrade() -> None:
    op.execute("DROP FUNCTION kb_accept")
    op.execute(BEFORE.strip())
