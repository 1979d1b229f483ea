"""Orders with their lines, reservations, coupon uses and status history."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)
ORDER_STATUS = ENUM(name="order_status", create_type=False)


def upgrade() -> None:
    op.execute(
        "CREATE TYPE order_status AS ENUM"
        " ('pending', 'paid', 'partly_shipped', 'shipped', 'delivered', 'cancelled')"
    )
    op.execute("CREATE SEQUENCE order_number_seq START 1000")
    op.create_table(
        "orders",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "number",
            sa.Text,
            nullable=False,
            unique=True,
            server_default=sa.text("'S' || lpad(nextval('order_number_seq')::text, 8, '0')"),
        ),
        sa.Column("customer_id", sa.BigInteger, sa.ForeignKey("customers.id"), nullable=False),
        sa.Column("cart_id", sa.BigInteger, sa.ForeignKey("carts.id"), unique=True),
        sa.Column("address_id", sa.BigInteger, sa.ForeignKey("addresses.id"), nullable=False),
        sa.Column("status", ORDER_STATUS, nullable=False, server_default="pending"),
        sa.Column("currency_code", sa.String(3), sa.ForeignKey("currencies.code"), nullable=False),
        sa.Column("subtotal", sa.BigInteger, nullable=False),
        sa.Column("discount", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("tax", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("shipping", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column(
            "total",
            sa.BigInteger,
            sa.Computed("subtotal - discount + tax + shipping", persisted=True),
            nullable=False,
        ),
        sa.Column("placed_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("subtotal >= 0 AND tax >= 0 AND shipping >= 0", name="amounts"),
        sa.CheckConstraint("discount BETWEEN 0 AND subtotal", name="discount"),
    )
    # Owned by the column: TRUNCATE ... RESTART IDENTITY starts the numbers again.
    op.execute("ALTER SEQUENCE order_number_seq OWNED BY orders.number")
    op.create_index("orders_customer_id_placed_at_idx", "orders", ["customer_id", "placed_at"])
    op.create_index("orders_placed_at_idx", "orders", ["placed_at"])
    op.create_index("orders_address_id_idx", "orders", ["address_id"])
    op.create_index(
        "orders_unfinished_idx",
        "orders",
        ["status", "placed_at"],
        postgresql_where=sa.text("status IN ('pending', 'paid', 'partly_shipped')"),
    )

    op.create_table(
        "order_lines",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "order_id",
            sa.BigInteger,
            sa.ForeignKey("orders.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("variant_id", sa.BigInteger, sa.ForeignKey("variants.id"), nullable=False),
        sa.Column("sku", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("unit_price", sa.BigInteger, nullable=False),
        sa.Column("discount", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column(
            "net",
            sa.BigInteger,
            sa.Computed("quantity * unit_price - discount", persisted=True),
            nullable=False,
        ),
        sa.UniqueConstraint("order_id", "position"),
        sa.CheckConstraint("quantity > 0", name="quantity"),
        sa.CheckConstraint("discount BETWEEN 0 AND quantity * unit_price", name="discount"),
    )
    op.create_index("order_lines_variant_id_idx", "order_lines", ["variant_id"])

    op.create_table(
        "reservations",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "order_line_id",
            sa.BigInteger,
            sa.ForeignKey("order_lines.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("warehouse_id", sa.BigInteger, sa.ForeignKey("warehouses.id"), nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("shipped", sa.Integer, nullable=False, server_default="0"),
        sa.UniqueConstraint("order_line_id", "warehouse_id"),
        sa.CheckConstraint("quantity > 0", name="quantity"),
        sa.CheckConstraint("shipped BETWEEN 0 AND quantity", name="shipped"),
    )
    op.create_index(
        "reservations_open_idx",
        "reservations",
        ["warehouse_id"],
        postgresql_where=sa.text("shipped < quantity"),
    )

    op.create_table(
        "coupon_uses",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("coupon_id", sa.BigInteger, sa.ForeignKey("coupons.id"), nullable=False),
        sa.Column("customer_id", sa.BigInteger, sa.ForeignKey("customers.id"), nullable=False),
        sa.Column(
            "order_id",
            sa.BigInteger,
            sa.ForeignKey("orders.id", ondelete="CASCADE"),
            nullable=False,
            unique=True,
        ),
        sa.Column("discount", sa.BigInteger, nullable=False),
        sa.Column("used_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("discount >= 0", name="discount"),
    )
    op.create_index(
        "coupon_uses_coupon_id_customer_id_idx", "coupon_uses", ["coupon_id", "customer_id"]
    )
    op.create_index("coupon_uses_customer_id_idx", "coupon_uses", ["customer_id"])

    op.create_table(
        "order_events",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "order_id",
            sa.BigInteger,
            sa.ForeignKey("orders.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("old_status", ORDER_STATUS),
        sa.Column("new_status", ORDER_STATUS, nullable=False),
        sa.Column("at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
    )
    op.create_index("order_events_order_id_id_idx", "order_events", ["order_id", "id"])
    op.create_index("order_events_at_idx", "order_events", ["at"])

    op.execute(
        """
        CREATE FUNCTION record_order_status() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'INSERT' THEN
                INSERT INTO order_events (order_id, new_status) VALUES (NEW.id, NEW.status);
            ELSIF NEW.status IS DISTINCT FROM OLD.status THEN
                INSERT INTO order_events (order_id, old_status, new_status)
                VALUES (NEW.id, OLD.status, NEW.status);
            END IF;
            RETURN NULL;
        END
        $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER orders_status AFTER INSERT OR UPDATE OF status ON orders
        FOR EACH ROW EXECUTE FUNCTION record_order_status()
        """
    )
    op.execute(
        """
        CREATE FUNCTION require_order_lines() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM orders WHERE id = NEW.id)
               AND NOT EXISTS (SELECT FROM order_lines WHERE order_id = NEW.id) THEN
                RAISE check_violation USING
                    MESSAGE = format('order %s has no lines', NEW.number),
                    CONSTRAINT = 'orders_have_lines', TABLE = 'orders';
            END IF;
            RETURN NULL;
        END
        $$
        """
    )
    op.execute(
        """
        CREATE CONSTRAINT TRIGGER orders_have_lines AFTER INSERT ON orders
        DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION require_order_lines()
        """
    )


def downgrade() -> None:
    op.drop_table("order_events")
    op.drop_table("coupon_uses")
    op.drop_table("reservations")
    op.drop_table("order_lines")
    op.drop_table("orders")
    op.execute("DROP FUNCTION require_order_lines()")
    op.execute("DROP FUNCTION record_order_status()")
    op.execute("DROP TYPE order_status")
