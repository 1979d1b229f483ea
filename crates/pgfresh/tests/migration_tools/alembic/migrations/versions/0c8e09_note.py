"""Require orders.note"""

import sqlalchemy as sa
from alembic import op

revision = "0c8e09"
down_revision = "7b7d08"


def upgrade() -> None:
    orders = sa.table("orders", sa.column("note", sa.String))
    op.execute(orders.update().where(orders.c.note.is_(None)).values(note=""))
    op.alter_column("orders", "note", type_=sa.String(40), nullable=False)
