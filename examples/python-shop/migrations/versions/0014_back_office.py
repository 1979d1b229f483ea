"""Purchasing, returns, invoices, and a view of what each order still owes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.execute("ALTER TYPE order_status ADD VALUE IF NOT EXISTS 'refunded'")

    op.execute("CREATE TYPE purchase_status AS ENUM ('open', 'received', 'cancelled')")
    op.create_table(
        "purchase_orders",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("supplier_id", sa.BigInteger, sa.ForeignKey("suppliers.id"), nullable=False),
        sa.Column("warehouse_id", sa.BigInteger, sa.ForeignKey("warehouses.id"), nullable=False),
        sa.Column(
            "status",
            ENUM(name="purchase_status", create_type=False),
            nullable=False,
            server_default="open",
        ),
        sa.Column("expected_on", sa.Date, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("received_at", TIMESTAMP),
    )
    op.create_index("purchase_orders_supplier_id_idx", "purchase_orders", ["supplier_id"])
    op.create_index("purchase_orders_warehouse_id_idx", "purchase_orders", ["warehouse_id"])
    op.create_index(
        "purchase_orders_open_idx",
        "purchase_orders",
        ["expected_on"],
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_table(
        "purchase_order_lines",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "purchase_order_id",
            sa.BigInteger,
            sa.ForeignKey("purchase_orders.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("variant_id", sa.BigInteger, sa.ForeignKey("variants.id"), nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("received", sa.Integer, nullable=False, server_default="0"),
        sa.Column("unit_cost", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("purchase_order_id", "variant_id"),
        sa.CheckConstraint("quantity > 0", name="quantity"),
        sa.CheckConstraint("received BETWEEN 0 AND quantity", name="received"),
    )
    op.create_index("purchase_order_lines_variant_id_idx", "purchase_order_lines", ["variant_id"])

    op.execute("CREATE TYPE return_status AS ENUM ('requested', 'received', 'rejected')")
    op.create_table(
        "returns",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("order_id", sa.BigInteger, sa.ForeignKey("orders.id"), nullable=False),
        sa.Column(
            "status",
            ENUM(name="return_status", create_type=False),
            nullable=False,
            server_default="requested",
        ),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("requested_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("received_at", TIMESTAMP),
    )
    op.create_index("returns_order_id_idx", "returns", ["order_id"])
    op.create_index("returns_status_idx", "returns", ["status"])
    op.create_table(
        "return_lines",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "return_id",
            sa.BigInteger,
            sa.ForeignKey("returns.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("order_line_id", sa.BigInteger, sa.ForeignKey("order_lines.id"), nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.UniqueConstraint("return_id", "order_line_id"),
        sa.CheckConstraint("quantity > 0", name="quantity"),
    )
    op.create_index("return_lines_order_line_id_idx", "return_lines", ["order_line_id"])

    op.create_table(
        "invoice_counters",
        sa.Column("year", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("last", sa.Integer, nullable=False),
    )
    op.create_table(
        "invoices",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "order_id", sa.BigInteger, sa.ForeignKey("orders.id"), nullable=False, unique=True
        ),
        sa.Column("year", sa.Integer, sa.ForeignKey("invoice_counters.year"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("issued_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("year", "number"),
    )
    op.create_index("invoices_issued_at_idx", "invoices", ["issued_at"])

    op.execute(
        """
        CREATE VIEW order_balances AS
        SELECT
            o.id AS order_id,
            o.total,
            coalesce(p.captured, 0)::bigint AS captured,
            coalesce(p.refunded, 0)::bigint AS refunded,
            (o.total - coalesce(p.captured, 0) + coalesce(p.refunded, 0))::bigint AS due
        FROM orders o
        LEFT JOIN LATERAL (
            SELECT sum(payments.amount) AS captured, sum(r.amount) AS refunded
            FROM payments
            LEFT JOIN LATERAL (
                SELECT sum(amount) AS amount FROM refunds WHERE payment_id = payments.id
            ) r ON true
            WHERE payments.order_id = o.id AND payments.status = 'captured'
        ) p ON true
        """
    )


def downgrade() -> None:
    op.execute("DROP VIEW order_balances")
    op.drop_table("invoices")
    op.drop_table("invoice_counters")
    op.drop_table("return_lines")
    op.drop_table("returns")
    op.execute("DROP TYPE return_status")
    op.drop_table("purchase_order_lines")
    op.drop_table("purchase_orders")
    op.execute("DROP TYPE purchase_status")
    # PostgreSQL cannot take a value out of an enum: 'refunded' stays.
