"""Index orders by status"""

from alembic import op

revision = "4a6c07"
down_revision = "8f5b06"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.create_index("orders_status", "orders", ["status"], postgresql_concurrently=True)
