"""Rename customers.email"""

from alembic import op

revision = "6d9f10"
down_revision = "0c8e09"


def upgrade() -> None:
    op.alter_column("customers", "email", new_column_name="mail")
