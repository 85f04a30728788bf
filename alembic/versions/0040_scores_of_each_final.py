"""A final's scores stay beside those of later ones: who may see the standings as they were sees them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_constraint("pk_final_score", "final_score", type_="primary")
    op.create_primary_key("pk_final_score", "final_score", ["run_id", "final_id"])


def downgrade() -> None:
    later = "x.run_id = final_score.run_id AND x.final_id > final_score.final_id"
    op.execute(sa.text(f"DELETE FROM final_score WHERE EXISTS (SELECT 1 FROM final_score x WHERE {later})"))
    op.drop_constraint("pk_final_score", "final_score", type_="primary")
    op.create_primary_key("pk_final_score", "final_score", ["run_id"])
