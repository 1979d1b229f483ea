"""Coupons and carts, at most one open cart per customer."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.execute("CREATE TYPE coupon_kind AS ENUM ('percent', 'amount')")
    op.create_table(
        "coupons",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("code", sa.Text, nullable=False, unique=True),
        sa.Column("kind", ENUM(name="coupon_kind", create_type=False), nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("min_subtotal", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("starts_at", TIMESTAMP, nullable=False),
        sa.Column("ends_at", TIMESTAMP),
        sa.Column("max_uses", sa.Integer),
        sa.Column("max_uses_per_customer", sa.Integer),
        sa.Column("active", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.CheckConstraint("code = upper(code)", name="code"),
        sa.CheckConstraint("value > 0 AND (kind <> 'percent' OR value <= 100)", name="value"),
        sa.CheckConstraint("ends_at > starts_at", name="period"),
    )
    op.create_index(
        "coupons_active_ends_at_idx",
        "coupons",
        ["ends_at"],
        postgresql_where=sa.text("active"),
    )

    op.execute("CREATE TYPE cart_status AS ENUM ('open', 'ordered', 'abandoned')")
    op.create_table(
        "carts",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "token",
            sa.Uuid,
            nullable=False,
            unique=True,
            server_default=sa.text("gen_random_uuid()"),
        ),
        sa.Column("customer_id", sa.BigInteger, sa.ForeignKey("customers.id", ondelete="CASCADE")),
        sa.Column(
            "status",
            ENUM(name="cart_status", create_type=False),
            nullable=False,
            server_default="open",
        ),
        sa.Column("currency_code", sa.String(3), sa.ForeignKey("currencies.code"), nullable=False),
        sa.Column("coupon_id", sa.BigInteger, sa.ForeignKey("coupons.id")),
        sa.Column("created_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
    )
    op.create_index("carts_customer_id_idx", "carts", ["customer_id"])
    op.create_index("carts_coupon_id_idx", "carts", ["coupon_id"])
    op.create_index("carts_status_updated_at_idx", "carts", ["status", "updated_at"])
    op.create_index(
        "carts_open_customer_key",
        "carts",
        ["customer_id"],
        unique=True,
        postgresql_where=sa.text("status = 'open'"),
    )

    op.create_table(
        "cart_items",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column(
            "cart_id",
            sa.BigInteger,
            sa.ForeignKey("carts.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("variant_id", sa.BigInteger, sa.ForeignKey("variants.id"), nullable=False),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.Column("added_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("cart_id", "variant_id"),
        sa.CheckConstraint("quantity > 0", name="quantity"),
    )
    op.create_index("cart_items_variant_id_idx", "cart_items", ["variant_id"])


def downgrade() -> None:
    op.drop_table("cart_items")
    op.drop_table("carts")
    op.execute("DROP TYPE cart_status")
    op.drop_table("coupons")
    op.execute("DROP TYPE coupon_kind")
