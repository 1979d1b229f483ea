"""Add the foreign key of orders"""

from alembic import op

revision = "8f5b06"
down_revision = "2e4a05"


def upgrade() -> None:
    op.create_foreign_key("orders_customer_id_fkey", "orders", "customers", ["customer_id"], ["id"])
