"""Insert rows"""

from alembic import op

revision = "1c2e03"
down_revision = "5b1d02"


def upgrade() -> None:
    op.execute("INSERT INTO customers (name) SELECT 'Customer ' || number FROM generate_series(1, 100) AS number")
    op.execute(
        "INSERT INTO orders (customer_id, total)"
        " SELECT 1 + number % 100, number FROM generate_series(1, 1000) AS number"
    )
