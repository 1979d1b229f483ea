"""Carriers, their rates, and shipments."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TIMESTAMP = sa.TIMESTAMP(timezone=True)

# carrier, country, currency, grams up to, amount
RATES = [
    ("POST", "DE", "EUR", 2000, 450),
    ("POST", "DE", "EUR", 10000, 890),
    ("POST", "AT", "EUR", 2000, 950),
    ("POST", "FR", "EUR", 2000, 1090),
    ("PARCEL", "DE", "EUR", 2000, 490),
    ("PARCEL", "DE", "EUR", 31500, 1650),
    ("PARCEL", "AT", "EUR", 31500, 1890),
    ("PARCEL", "FR", "EUR", 31500, 2100),
    ("PARCEL", "CH", "EUR", 31500, 2900),
    ("PARCEL", "CH", "CHF", 31500, 2800),
    ("PARCEL", "GB", "GBP", 31500, 1450),
    ("EXPRESS", "GB", "EUR", 5000, 2950),
    ("EXPRESS", "US", "USD", 5000, 3900),
    ("EXPRESS", "US", "EUR", 5000, 3700),
]


def upgrade() -> None:
    carriers = op.create_table(
        "carriers",
        sa.Column("code", sa.String(12), primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
    )
    op.bulk_insert(
        carriers,
        [
            {"code": "POST", "name": "Letter post"},
            {"code": "PARCEL", "name": "Parcel service"},
            {"code": "EXPRESS", "name": "Express courier"},
        ],
    )

    rates = op.create_table(
        "shipping_rates",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("carrier_code", sa.String(12), sa.ForeignKey("carriers.code"), nullable=False),
        sa.Column("country_code", sa.String(2), sa.ForeignKey("countries.code"), nullable=False),
        sa.Column("currency_code", sa.String(3), sa.ForeignKey("currencies.code"), nullable=False),
        sa.Column("max_weight_grams", sa.Integer, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("carrier_code", "country_code", "currency_code", "max_weight_grams"),
        sa.CheckConstraint("max_weight_grams > 0", name="max_weight_grams"),
        sa.CheckConstraint("amount >= 0", name="amount"),
    )
    op.create_index(
        "shipping_rates_country_code_currency_code_max_weight_grams_idx",
        "shipping_rates",
        ["country_code", "currency_code", "max_weight_grams"],
    )
    columns = ("carrier_code", "country_code", "currency_code", "max_weight_grams", "amount")
    op.bulk_insert(rates, [dict(zip(columns, rate, strict=True)) for rate in RATES])

    op.create_table(
        "shipments",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("order_id", sa.BigInteger, sa.ForeignKey("orders.id"), nullable=False),
        sa.Column("warehouse_id", sa.BigInteger, sa.ForeignKey("warehouses.id"), nullable=False),
        sa.Column("carrier_code", sa.String(12), sa.ForeignKey("carriers.code"), nullable=False),
        sa.Column("tracking_number", sa.Text),
        sa.Column("shipped_at", TIMESTAMP, nullable=False, server_default=sa.func.now()),
        sa.Column("delivered_at", TIMESTAMP),
        sa.CheckConstraint("delivered_at >= shipped_at", name="delivered_at"),
    )
    op.create_index("shipments_order_id_idx", "shipments", ["order_id"])
    op.create_index("shipments_warehouse_id_idx", "shipments", ["warehouse_id"])
    op.create_index(
        "shipments_tracking_number_key",
        "shipments",
        ["carrier_code", "tracking_number"],
        unique=True,
        postgresql_where=sa.text("tracking_number IS NOT NULL"),
    )
    op.create_index(
        "shipments_in_transit_idx",
        "shipments",
        ["shipped_at"],
        postgresql_where=sa.text("delivered_at IS NULL"),
    )

    op.create_table(
        "shipment_lines",
        sa.Column(
            "shipment_id",
            sa.BigInteger,
            sa.ForeignKey("shipments.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column(
            "order_line_id", sa.BigInteger, sa.ForeignKey("order_lines.id"), primary_key=True
        ),
        sa.Column("quantity", sa.Integer, nullable=False),
        sa.CheckConstraint("quantity > 0", name="quantity"),
    )
    op.create_index("shipment_lines_order_line_id_idx", "shipment_lines", ["order_line_id"])


def downgrade() -> None:
    op.drop_table("shipment_lines")
    op.drop_table("shipments")
    op.drop_table("shipping_rates")
    op.drop_table("carriers")
