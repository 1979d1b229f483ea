"""Create customers"""

import sqlalchemy as sa
from alembic import op

revision = "3a0c01"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "customers",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("email", sa.String(80)),
    )
