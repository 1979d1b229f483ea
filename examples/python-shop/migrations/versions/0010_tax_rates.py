"""Tax rates per country, and the tax of each order line."""

from datetime import date

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ENUM

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

START = date(2020, 1, 1)

# country, category, rate, from, to (exclusive)
RATES = [
    ("DE", "standard", "0.19", START, date(2020, 7, 1)),
    ("DE", "standard", "0.16", date(2020, 7, 1), date(2021, 1, 1)),
    ("DE", "standard", "0.19", date(2021, 1, 1), None),
    ("DE", "reduced", "0.07", START, date(2020, 7, 1)),
    ("DE", "reduced", "0.05", date(2020, 7, 1), date(2021, 1, 1)),
    ("DE", "reduced", "0.07", date(2021, 1, 1), None),
    ("AT", "standard", "0.20", START, None),
    ("AT", "reduced", "0.10", START, None),
    ("FR", "standard", "0.20", START, None),
    ("FR", "reduced", "0.055", START, None),
    ("GB", "standard", "0.20", START, None),
    ("GB", "reduced", "0.05", START, None),
    ("CH", "standard", "0.077", START, date(2024, 1, 1)),
    ("CH", "standard", "0.081", date(2024, 1, 1), None),
    ("CH", "reduced", "0.025", START, date(2024, 1, 1)),
    ("CH", "reduced", "0.026", date(2024, 1, 1), None),
]


def upgrade() -> None:
    rates = op.create_table(
        "tax_rates",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("country_code", sa.String(2), sa.ForeignKey("countries.code"), nullable=False),
        sa.Column("tax_category", ENUM(name="tax_category", create_type=False), nullable=False),
        sa.Column("rate", sa.Numeric(5, 4), nullable=False),
        sa.Column("valid_from", sa.Date, nullable=False),
        sa.Column("valid_to", sa.Date),
        sa.UniqueConstraint("country_code", "tax_category", "valid_from"),
        sa.CheckConstraint("rate >= 0 AND rate < 1", name="rate"),
        sa.CheckConstraint("valid_to > valid_from", name="period"),
    )
    columns = ("country_code", "tax_category", "rate", "valid_from", "valid_to")
    op.bulk_insert(rates, [dict(zip(columns, rate, strict=True)) for rate in RATES])

    op.add_column(
        "order_lines",
        sa.Column("tax_rate", sa.Numeric(5, 4), nullable=False, server_default="0"),
    )
    op.add_column(
        "order_lines", sa.Column("tax", sa.BigInteger, nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("order_lines", "tax")
    op.drop_column("order_lines", "tax_rate")
    op.drop_table("tax_rates")
