"""Create orders"""

import sqlalchemy as sa
from alembic import op

revision = "5b1d02"
down_revision = "3a0c01"


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("customer_id", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("note", sa.String(20)),
    )
