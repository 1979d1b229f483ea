"""Index orders by customer"""

from alembic import op

revision = "9d3f04"
down_revision = "1c2e03"


def upgrade() -> None:
    op.create_index("orders_customer_id", "orders", ["customer_id"])
