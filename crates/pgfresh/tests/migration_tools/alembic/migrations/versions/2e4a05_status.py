"""Add orders.status"""

import sqlalchemy as sa
from alembic import op

revision = "2e4a05"
down_revision = "9d3f04"


def upgrade() -> None:
    op.add_column("orders", sa.Column("status", sa.Text, server_default="new", nullable=False))
