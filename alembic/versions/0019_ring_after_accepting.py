"""Ring after accepting: transactions that NOTIFY are committed one after another, so accepting rings afterwards"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

INTAKE_LOCK = 4_927_306
NEWS = """
CREATE OR REPLACE FUNCTION kb_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('kbslurm.news', true) IS DISTINCT FROM 'later' THEN
        NOTIFY kbslurm_news;
    END IF;
    RETURN NULL;
END $$
"""
NEWS_BEFORE = """
CREATE OR REPLACE FUNCTION kb_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY kbslurm_news;
    RETURN NULL;
END $$
"""
LOCK = f"""
CREATE OR REPLACE FUNCTION kb_intake_lock(the_person bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('kbslurm.news', 'later', true);
    PERFORM pg_advisory_xact_lock_shared({INTAKE_LOCK});
    PERFORM p.id FROM person p WHERE p.id = the_person FOR NO KEY UPDATE;
END $$
"""
LOCK_BEFORE = f"""
CREATE OR REPLACE FUNCTION kb_intake_lock(the_person bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({INTAKE_LOCK});
    PERFORM p.id FROM person p WHERE p.id = the_person FOR NO KEY UPDATE;
END $$
"""


def upgrade() -> None:
    op.execute(NEWS.strip())
    op.execute(LOCK.strip())


def downgrade() -> None:
    op.execute(LOCK_BEFORE.strip())
    op.execute(NEWS_BEFORE.strip())
